"""Runs the algorithms one after another on this machine, and writes docs/recipes.md about it.

`make recipes` calls it. All of it is asked of the tfdeploy command line, as anyone could.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).resolve().parent
DOCS = EXAMPLES.parent / "docs"
TARGET = "0.3"
SECONDS = "20"


class Recipe(NamedTuple):
    """What it is called in the table, the folder, its hosts file, and what sets it apart."""

    label: str
    folder: str
    hosts: str
    idea: str


RECIPES = (
    Recipe("serial", "serial", "hosts.toml", "one process, Adam"),
    Recipe("serial-sgd", "serial", "hosts.sgd.toml", "one process, SGD"),
    Recipe("hogwild", "hogwild", "hosts.toml", "each gradient at once, no locks"),
    Recipe("downpour", "downpour", "hosts.toml", "own copy, a window's gradients, Adagrad"),
    Recipe("downpour-sgd", "downpour", "hosts.sgd.toml", "the same, SGD"),
    Recipe("adag", "adag", "hosts.toml", "own copy, a window's mean"),
    Recipe("dynsgd", "dynsgd", "hosts.toml", "who comes late counts less"),
    Recipe("aeasgd", "aeasgd", "hosts.toml", "own copy on a spring"),
    Recipe("aeamsgd", "aeamsgd", "hosts.toml", "the same, with momentum"),
    Recipe("ssgd", "ssgd", "hosts.toml", "synchronous, a round a batch"),
    Recipe("sagn", "sagn", "hosts.toml", "synchronous, a round a window"),
)


class Outcome(NamedTuple):
    recipe: Recipe
    folder: Path
    wall_s: float
    accuracy: float


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        examples = Path(scratch) / "examples"
        shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        outcomes = [outcome(examples, recipe) for recipe in RECIPES]
        compared = compare(examples, outcomes)
        swept = sweep(examples / "digits")
        (DOCS / "recipes.md").write_text(page(outcomes, compared, swept))
    say(f"{DOCS / 'recipes.md'} is written")


def outcome(examples: Path, recipe: Recipe) -> Outcome:
    say(f"{recipe.label} …")
    began = time.monotonic()
    done = asked(examples / recipe.folder, "run", "--hosts", recipe.hosts)
    wall_s = time.monotonic() - began
    folder = Path(done["collected"])
    scored = subprocess.run(
        [sys.executable, "digits/eval.py", str(folder / "checkpoints"), "--json"],
        cwd=examples, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return Outcome(recipe, folder, wall_s, json.loads(scored.stdout)["accuracy"])


def compare(examples: Path, outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """What each run told of its loss, by its label."""
    runs = [f"{done.recipe.label}={done.folder}" for done in outcomes]
    words = ("--target", TARGET, "--picture", str(DOCS / "recipes.svg"))
    told = asked(examples / "serial", "compare", *runs, *words)["runs"]
    return {each["label"]: each for each in told}


def sweep(digits: Path) -> dict[str, Any]:
    say("sweep …")
    hosts = digits / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("--steps=600", "--steps=1000000"))
    told = asked(digits, "sweep", "--ps", "1,2", "--workers", "1,2", "--seconds", SECONDS)
    shutil.copy(digits / "sweep" / "speedup.svg", DOCS / "speedup.svg")
    return told


def asked(folder: Path, *words: str) -> dict[str, Any]:
    """The document that tfdeploy answers with; what it tells people is seen as it goes."""
    done = subprocess.run(
        ["tfdeploy", *words, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


# The page


def page(
    outcomes: list[Outcome], compared: dict[str, dict[str, Any]], swept: dict[str, Any]
) -> str:
    return PAGE.format(
        machine=f"{os.cpu_count()} cores ({platform.machine()}), no GPU",
        target=TARGET,
        algorithms="\n".join(row(done, compared[done.recipe.label]) for done in outcomes),
        cells="\n".join(cell(each) for each in swept["cells"]),
        verdict=verdict(swept),
        seconds=SECONDS,
    )


def row(done: Outcome, told: dict[str, Any]) -> str:
    reached = told["reached"]
    where = f"{reached['step']} | {reached['seconds']:.1f}" if reached else "- | -"
    recipe = done.recipe
    return (
        f"| [{recipe.label}](../examples/{recipe.folder}/) | {recipe.idea} | {told['steps']} "
        f"| {told['seconds']:.1f} | {where} | {told['last']:.3f} | {done.accuracy:.3f} |"
    )


def cell(each: dict[str, Any]) -> str:
    load, traffic = each["load"], each["load"]["network_bytes_per_s"]
    figures = (
        figure(each["steps_per_s"], 0),
        figure(each["speedup"], 2),
        figure(load["ps_cores"], 2),
        figure(load["worker_cores"], 2),
        figure(traffic and traffic / 1e6, 0),
    )
    return f"| {each['ps']} | {each['workers']} | {' | '.join(figures)} |"


def figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def verdict(swept: dict[str, Any]) -> str:
    """How many ps the sweep found to be enough, and how far it came."""
    enough = ", ".join(f"{ps} ps for {n} worker(s)" for n, ps in swept["enough_ps"].items())
    best = max((each["speedup"] or 0.0 for each in swept["cells"]), default=0.0)
    return f"Enough here: {enough}. The most that was reached is {best:.2f} times one worker."


PAGE = """# The recipes side by side

The training algorithms of `examples/`, each on the same net and the same digits, with one ps and two workers on one machine.
`make recipes` has run them one after another and has written this page; what it did is in `examples/side_by_side.py`.
Measured on {machine}: workers, ps and the measuring itself share these cores, so seconds say little about your machines, and steps say more.

![loss against step and against time](recipes.svg)

| recipe | what sets it apart | steps | seconds | step at loss {target} | seconds at loss {target} | last loss | test accuracy |
|---|---|--:|--:|--:|--:|--:|--:|
{algorithms}

A step is a batch of 64 images, whoever computed it; the loss is that of the chief's own batches, a running mean over a twentieth of the longest run. Where workers have copies of their own, it is the loss of the chief's copy, not of the weights that are saved.
Seconds begin with the first loss that was told. The accuracy is that of the checkpoint that was collected, on images that no worker has seen (359; one is 0.003).

How to read it:

- `serial` has Adam, as `examples/digits` does. All algorithms apply plain SGD (DOWNPOUR Adagrad), so `serial-sgd` is what to compare them with: one process that never works with old weights, at Hogwild's rate. Each algorithm has a rate of its own, the one that did well here, so lines differ by that too.
- Hogwild exchanges after each batch. DOWNPOUR, ADAG, DynSGD and the elastic ones exchange once a window: that is for slow networks, which one machine doesn't have.
- The synchronous ones (SSGD, SAGN) take rounds: a batch, or a window, of each worker. They wait for the slowest.
- Weights begin at random, and the order of updates differs: every figure differs from run to run.

For your own runs: `tfdeploy compare RUN RUN…` draws the same picture.

## How many ps for how many workers?

`tfdeploy sweep --ps 1,2 --workers 1,2 --seconds {seconds}` on `examples/digits`, with enough steps:

![speed-up against workers](speedup.svg)

| ps | workers | steps/s | speed-up | ps cores | worker cores | network, MB/s |
|--:|--:|--:|--:|--:|--:|--:|
{cells}

{verdict} All tasks share this machine's cores: on machines of their own the same command answers for your script, your net and your network.
"""


if __name__ == "__main__":
    main()
