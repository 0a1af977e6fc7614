"""Real trainings of the recipes with several workers: docs/figures/real.json.

It uses only the tfdeploy command line. The recipes run one after another, and that is repeated, so
that a busy minute of the machine does not hit all runs of one recipe.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).resolve().parents[1]
DOCS = EXAMPLES.parent / "docs"
FOLDER = DOCS / "figures"
FILE = "real.json"
REPEATS = 3
CENTRE = re.compile(r"^centre at step (\d+) loss (\S+) after (\S+) s$", re.M)
STOPPED = re.compile(r"^stopped at step (\d+) in (\S+) s, own steps: (\d+)$", re.M)
WORKERS, COMPUTE_MS = (4, 8), 60.0
BATCHES = 3200  # of all workers together
TURNS = ("hogwild", "downpour-sgd", "adag")  # also run without a pause: many workers, few cores
POINTS = 17  # in the curve of a run
CHIEF = "worker-0.log"
BACKUP_SLOW_MS, BACKUP_STEPS = 100, 200


class Recipe(NamedTuple):
    """The name, the recipe's learning rate, folder and hosts file, and its flag for the rate."""

    algorithm: str
    rate: float
    folder: str
    hosts: str = "hosts.toml"
    rate_flag: str = "learning_rate"


class Setting(NamedTuple):
    """What differs between the runs of a recipe."""

    rate: float
    repeat: int
    workers: int
    compute_ms: float


RECIPES = (
    Recipe("hogwild", 0.5, "hogwild"),
    Recipe("downpour", 0.2, "downpour"),
    Recipe("downpour-sgd", 0.5, "downpour", "hosts.sgd.toml"),
    Recipe("adag", 1.0, "adag"),
    Recipe("dynsgd", 1.0, "dynsgd"),
    Recipe("aeasgd", 1.0, "aeasgd"),
    Recipe("aeamsgd", 0.2, "aeamsgd"),
    Recipe("ssgd", 1.0, "ssgd", rate_flag="learning_rates"),
    Recipe("sagn", 1.0, "sagn"),
)


def measure(repeats: int = REPEATS) -> Iterator[dict[str, Any]]:
    """Run everything; after each repetition, yield what real.json contains."""
    runs, backups = [], []
    with tempfile.TemporaryDirectory() as scratch:
        examples = Path(scratch) / "examples"
        shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (examples / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        for repeat in range(repeats):
            for recipe in RECIPES:
                runs += [
                    train(examples, recipe, Setting(recipe.rate, repeat, workers, pause))
                    for workers, pause in settings_of(recipe)
                ]
            backups += [train_with_backup(examples, backup, repeat) for backup in (0, 1)]
            yield {
                "made by": "make recipes",
                "constants": {
                    "cores": os.cpu_count(), "machine": platform.machine(), "repeats": repeat + 1,
                    "compute_ms": COMPUTE_MS, "slow_ms": BACKUP_SLOW_MS,
                },
                "rates": {recipe.algorithm: recipe.rate for recipe in RECIPES},
                "runs": runs, "backup": backups,
            }  # fmt: skip


def finite(loss: float) -> float:
    """Return a loss that is not finite as 1000."""
    return round(loss, 4) if math.isfinite(loss) else 1000.0


def settings_of(recipe: Recipe) -> list[tuple[int, float]]:
    """Return the numbers of workers and --compute_ms of the runs of a recipe."""
    overlapping = [(workers, COMPUTE_MS) for workers in WORKERS]
    return overlapping + [(WORKERS[-1], 0.0)] * (recipe.algorithm in TURNS)


def train(examples: Path, recipe: Recipe, setting: Setting) -> dict[str, Any]:
    """Train once; return the curve of the central weights, and each worker's batches."""
    print(f"\n== {recipe.algorithm}, {setting} …", flush=True)
    every = BATCHES // (POINTS - 1)
    flags = (
        f"--steps={BATCHES}", f"--measure_every={every}", "--net=dense",
        f"--{recipe.rate_flag}={setting.rate}", f"--compute_ms={setting.compute_ms}",
    )  # fmt: skip
    logs = tfdeploy_run(examples / recipe.folder, recipe.hosts, flags, setting.workers)
    steps, losses, seconds = zip(*CENTRE.findall((logs / CHIEF).read_text()), strict=True)
    return {
        "algorithm": recipe.algorithm, **setting._asdict(),
        "loss": finite(float(losses[-1])),
        "shares": [own_batches(logs, worker) for worker in range(setting.workers)],
        "curve": {
            "batches": [int(step) for step in steps],
            "loss": [finite(float(loss)) for loss in losses],
            "seconds": [float(each) for each in seconds],
        },
    }  # fmt: skip


def own_batches(logs: Path, worker: int) -> int:
    """Return how many batches a worker computed; 0 if the training was over before it began."""
    stopped = STOPPED.findall((logs / f"worker-{worker}.log").read_text())
    return int(stopped[-1][2]) if stopped else 0


def train_with_backup(examples: Path, backup: int, repeat: int) -> dict[str, Any]:
    """Train sync_replicas with 3 workers, one of them slowed; return how often each took part."""
    print(f"\n== sync_replicas --backup={backup}, {repeat + 1} …", flush=True)
    flags = (
        f"--backup={backup}", f"--steps={BACKUP_STEPS}", "--net=dense",
        f"--slow_ms={BACKUP_SLOW_MS}",
    )  # fmt: skip
    logs = tfdeploy_run(examples / "sync_replicas", "hosts.backup.toml", flags, workers=3)
    ends = [STOPPED.findall((logs / f"worker-{index}.log").read_text()) for index in range(3)]
    return {
        "backup": backup, "repeat": repeat,
        "steps": int(ends[0][-1][0]), "seconds": float(ends[0][-1][1]),
        "own": [int(end[-1][2]) if end else None for end in ends],
    }  # fmt: skip


def tfdeploy_run(folder: Path, hosts: str, flags: tuple[str, ...], workers: int) -> Path:
    """Run `tfdeploy run`, which shows its text; return the folder of the collected logs."""
    counts = ("--with", f"workers={workers}")
    subprocess.run(["tfdeploy", "trust", "--hosts", hosts], cwd=folder, check=True)
    done = subprocess.run(
        ["tfdeploy", "run", "--hosts", hosts, *counts, "--json", "--", *flags],
        cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Path(json.loads(done.stdout)["collected"]) / "logs"


# The raw data


def write(content: dict[str, Any]) -> None:
    """Write real.json with one run a line."""
    parts = (f"{json.dumps(key)}: {_value(value)}" for key, value in content.items())
    (FOLDER / FILE).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(each) for each in value) + "\n]"


def read() -> dict[str, Any]:
    return json.loads((FOLDER / FILE).read_text())


def overlapping(data: dict[str, Any], name: str, workers: int) -> list[dict[str, Any]]:
    """Return the runs of a recipe in which all workers computed at the same time."""
    wanted = (name, workers, data["constants"]["compute_ms"])
    return [run for run in data["runs"] if _key(run) == wanted]


def taking_turns(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [run for run in data["runs"] if _key(run) == (name, WORKERS[-1], 0.0)]


def _key(run: dict[str, Any]) -> tuple[str, int, float]:
    return run["algorithm"], run["workers"], run["compute_ms"]
