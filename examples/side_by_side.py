"""Run the algorithms one after another on this machine, and write docs/recipes.md.

`make recipes` calls this script. It uses only the tfdeploy command line.
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
    """A row of the table: its label, folder, hosts file, and what differs from the others."""

    label: str
    folder: str
    hosts: str
    idea: str


RECIPES = (
    Recipe("serial", "serial", "hosts.toml", "one process, Adam"),
    Recipe("serial-sgd", "serial", "hosts.sgd.toml", "one process, SGD"),
    Recipe("hogwild", "hogwild", "hosts.toml", "each gradient applied at once, no locks"),
    Recipe("downpour", "downpour", "hosts.toml", "own copy, gradients of a window, Adagrad"),
    Recipe("downpour-sgd", "downpour", "hosts.sgd.toml", "the same, SGD"),
    Recipe("adag", "adag", "hosts.toml", "own copy, mean of a window"),
    Recipe("dynsgd", "dynsgd", "hosts.toml", "late gradients count less"),
    Recipe("aeasgd", "aeasgd", "hosts.toml", "own copy, pulled to the centre"),
    Recipe("aeamsgd", "aeamsgd", "hosts.toml", "the same, with momentum"),
    Recipe("ssgd", "ssgd", "hosts.toml", "synchronous, one round per batch"),
    Recipe("sagn", "sagn", "hosts.toml", "synchronous, one round per window"),
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
    start = time.monotonic()
    result = tfdeploy(examples / recipe.folder, "run", "--hosts", recipe.hosts)
    wall_s = time.monotonic() - start
    folder = Path(result["collected"])
    scored = subprocess.run(
        [sys.executable, "digits/eval.py", str(folder / "checkpoints"), "--json"],
        cwd=examples, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return Outcome(recipe, folder, wall_s, json.loads(scored.stdout)["accuracy"])


def compare(examples: Path, outcomes: list[Outcome]) -> dict[str, dict[str, Any]]:
    """Return what `tfdeploy compare` reports about each run, by its label."""
    runs = [f"{one.recipe.label}={one.folder}" for one in outcomes]
    words = ("--target", TARGET, "--picture", str(DOCS / "recipes.svg"))
    compared = tfdeploy(examples / "serial", "compare", *runs, *words)["runs"]
    return {each["label"]: each for each in compared}


def sweep(digits: Path) -> dict[str, Any]:
    say("sweep …")
    hosts = digits / "hosts.toml"
    hosts.write_text(hosts.read_text().replace("--steps=600", "--steps=1000000"))
    swept = tfdeploy(digits, "sweep", "--ps", "1,2", "--workers", "1,2", "--seconds", SECONDS)
    shutil.copy(digits / "sweep" / "speedup.svg", DOCS / "speedup.svg")
    return swept


def tfdeploy(folder: Path, *words: str) -> dict[str, Any]:
    """Run a tfdeploy command and return its JSON document; its text for people is shown."""
    result = subprocess.run(
        ["tfdeploy", *words, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(result.stdout)


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


# The page


def page(
    outcomes: list[Outcome], compared: dict[str, dict[str, Any]], swept: dict[str, Any]
) -> str:
    return PAGE.format(
        machine=f"{os.cpu_count()} cores ({platform.machine()}), no GPU",
        target=TARGET,
        algorithms="\n".join(row(one, compared[one.recipe.label]) for one in outcomes),
        cells="\n".join(cell(each) for each in swept["cells"]),
        summary=summary(swept),
        seconds=SECONDS,
    )


def row(outcome: Outcome, compared: dict[str, Any]) -> str:
    reached = compared["reached"]
    where = f"{reached['step']} | {reached['seconds']:.1f}" if reached else "- | -"
    recipe = outcome.recipe
    return (
        f"| [{recipe.label}](../examples/{recipe.folder}/) | {recipe.idea} | {compared['steps']} "
        f"| {compared['seconds']:.1f} | {where} | {compared['last']:.3f} | {outcome.accuracy:.3f} |"
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


def summary(swept: dict[str, Any]) -> str:
    """Return which numbers of ps the sweep found to be enough, and the best speed-up."""
    found = "; ".join(map(verdict, swept["ps_verdicts"]))
    best = max(swept["cells"], key=lambda each: each["speedup"] or 0.0)
    low, high = best["speedup_range"] or (best["speedup"], best["speedup"])
    return (
        f"Each figure is the median of {len(best['runs'])} runs. On this machine: {found}. The "
        f"best speed-up is {best['speedup']:.2f} times one worker ({low:.2f} to {high:.2f})."
    )


def verdict(of_workers: dict[str, Any]) -> str:
    count = of_workers["workers"]
    workers = f"{count} {'worker' if count == 1 else 'workers'}"
    compared = " and ".join(map(str, of_workers["ps"]))
    if of_workers["enough"] is None:
        return f"{of_workers['reason']} for {workers} with {compared} ps"
    return f"{of_workers['enough']} ps enough for {workers}"


PAGE = """# The recipes side by side

The training algorithms of `examples/`, each with the same net and the same digits, with one ps and two workers on one machine.
`make recipes` runs them one after another and writes this page; the script is `examples/side_by_side.py`.
Measured on {machine}. Workers, ps and the measurement share these cores, so seconds say little about your machines; steps say more.

![loss against step and against time](recipes.svg)

| recipe | what differs | steps | seconds | step at loss {target} | seconds at loss {target} | last loss | test accuracy |
|---|---|--:|--:|--:|--:|--:|--:|
{algorithms}

A step is a batch of 64 images on any worker. The loss is that of the chief's own batches, a running mean over a twentieth of the longest run. If workers have copies of their own, it is the loss of the chief's copy, not of the weights that are saved.
Seconds count from the first reported loss. The accuracy is that of the collected checkpoint, on 359 images that were not used for training (one image is 0.003).

How to read it:

- `serial` uses Adam, like `examples/digits`. All algorithms use plain SGD (DOWNPOUR: Adagrad), so compare them with `serial-sgd`: one process that never uses old weights, with Hogwild's learning rate. Each algorithm has its own learning rate, chosen because it did well here, so the lines differ by that too.
- Hogwild exchanges weights after each batch. DOWNPOUR, ADAG, DynSGD and the elastic ones exchange once per window: that helps on slow networks, which a single machine does not have.
- The synchronous ones (SSGD, SAGN) work in rounds: one batch, or one window, of each worker. They wait for the slowest worker.
- The first weights are random, and the order of updates differs: every figure differs from run to run.

For your own runs, `tfdeploy compare RUN RUN…` draws the same plot.

## How many ps for how many workers?

`tfdeploy sweep --ps 1,2 --workers 1,2 --seconds {seconds}` on `examples/digits`, with enough steps:

![speed-up against workers](speedup.svg)

| ps | workers | steps/s | speed-up | ps cores | worker cores | network, MB/s |
|--:|--:|--:|--:|--:|--:|--:|
{cells}

{summary} All tasks share this machine's cores. Run the same command on your machines to measure your script, your net and your network.
"""


if __name__ == "__main__":
    main()
