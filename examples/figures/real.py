"""Real trainings of the recipes with many workers, as in the simulation: docs/figures/real.json.

It uses only the tfdeploy command line. The recipes run one after another, and that is repeated, so
that a busy minute of the machine does not hit all runs of one recipe.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from figures import grid, store

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).resolve().parents[1]
REPEATS = 3
CENTRE = re.compile(r"^centre at step (\d+) loss (\S+) after (\S+) s$", re.M)
STOPPED = re.compile(r"^stopped at step (\d+) in (\S+) s, own steps: (\d+)$", re.M)
WORKERS, COMPUTE_MS = (4, grid.MANY), 60.0
TURNS = ("hogwild", "downpour-sgd", "adag")  # also run without a pause: many workers, few cores
POINTS = 17  # in the curve of a run
CHIEF = "worker-0.log"
BACKUP_SLOW_MS, BACKUP_STEPS = 100, 200


class Recipe(NamedTuple):
    """The name in the simulation, the recipe's folder and hosts file, and its flag for the rate."""

    algorithm: str
    folder: str
    hosts: str = "hosts.toml"
    rate_flag: str = "learning_rate"


class Setting(NamedTuple):
    """What differs between the runs of a recipe."""

    rate: float
    repeat: int
    workers: int = grid.MANY
    compute_ms: float = 0.0


RECIPES = (
    Recipe("hogwild", "hogwild"),
    Recipe("downpour", "downpour"),
    Recipe("downpour-sgd", "downpour", "hosts.sgd.toml"),
    Recipe("adag", "adag"),
    Recipe("dynsgd", "dynsgd"),
    Recipe("aeasgd", "aeasgd"),
    Recipe("aeamsgd", "aeamsgd"),
    Recipe("ssgd", "ssgd", rate_flag="learning_rates"),
    Recipe("sagn", "sagn"),
)


def measure(repeats: int = REPEATS) -> Iterator[dict[str, Any]]:
    """Run everything; after each repetition, yield what real.json contains."""
    chosen = store.read(store.SIMULATION)["chosen rates"]
    rates = {recipe.algorithm: chosen[recipe.algorithm] for recipe in RECIPES}
    runs, backups = [], []
    with tempfile.TemporaryDirectory() as scratch:
        examples = Path(scratch) / "examples"
        shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (examples / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        for repeat in range(repeats):
            for recipe in RECIPES:
                setting = Setting(rates[recipe.algorithm], repeat)
                runs += [
                    train(examples, recipe, setting._replace(workers=workers, compute_ms=pause))
                    for workers, pause in settings_of(recipe)
                ]
            backups += [train_with_backup(examples, backup, repeat) for backup in (0, 1)]
            yield {
                "made by": "make recipes",
                "constants": {
                    "cores": os.cpu_count(), "machine": platform.machine(), "repeats": repeat + 1,
                    "compute_ms": COMPUTE_MS, "slow_ms": BACKUP_SLOW_MS,
                },
                "rates": rates, "runs": runs, "backup": backups,
            }  # fmt: skip


def settings_of(recipe: Recipe) -> list[tuple[int, float]]:
    """Return the numbers of workers and --compute_ms of the runs of a recipe."""
    overlapping = [(workers, COMPUTE_MS) for workers in WORKERS]
    return overlapping + [(grid.MANY, 0.0)] * (recipe.algorithm in TURNS)


def train(examples: Path, recipe: Recipe, setting: Setting) -> dict[str, Any]:
    """Train once; return the curve of the central weights, and each worker's batches."""
    print(f"\n== {recipe.algorithm}, {setting} …", flush=True)
    every = grid.BATCHES // (POINTS - 1)
    flags = (
        f"--steps={grid.BATCHES}", f"--measure_every={every}", "--net=dense",
        f"--{recipe.rate_flag}={setting.rate}", f"--compute_ms={setting.compute_ms}",
    )  # fmt: skip
    logs = tfdeploy_run(examples / recipe.folder, recipe.hosts, flags, setting.workers)
    steps, losses, seconds = zip(*CENTRE.findall((logs / CHIEF).read_text()), strict=True)
    return {
        "algorithm": recipe.algorithm, **setting._asdict(),
        "loss": grid.finite(float(losses[-1])),
        "shares": [own_batches(logs, worker) for worker in range(setting.workers)],
        "curve": {
            "batches": [int(step) for step in steps],
            "loss": [grid.finite(float(loss)) for loss in losses],
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
    done = subprocess.run(
        ["tfdeploy", "run", "--hosts", hosts, *counts, "--json", "--", *flags],
        cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Path(json.loads(done.stdout)["collected"]) / "logs"
