"""Measure serial, in-graph and between-graph training in batches per second, on this machine.

`make replication` calls this script: it runs four setups in turn, several times, and writes what
it measured to docs/replication.json. It uses the tfdeploy command line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tfdeploy.branches.measuring import scalars

EXAMPLES = Path(__file__).resolve().parent
STORED = EXAMPLES.parent / "docs" / "replication.json"
WARM_UP = 100  # Steps that do not count: the other worker may not have started yet.


class Setup(NamedTuple):
    """A recipe, with batches of 64 images: `batches` of them are a step."""

    name: str
    recipe: str
    batches: int
    words: tuple[str, ...] = ()


SETUPS = (
    Setup("serial", "serial", 1),
    Setup("in-graph, 2 towers, one shared input", "towers", 2),
    Setup("in-graph, 2 towers, an input for each", "towers", 2, ("--own_input",)),
    Setup("between-graph, 1 ps and 2 workers", "digits", 1, ("--batch_size=64",)),
)


def main() -> None:
    given = parse_flags()
    rates: dict[str, list[float]] = {setup.name: [] for setup in SETUPS}
    with tempfile.TemporaryDirectory() as scratch:
        examples = Path(scratch) / "examples"
        shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (examples / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        for _ in range(given.repeats):  # Interleaved: other programs slow down all setups alike.
            for setup in SETUPS:
                rates[setup.name].append(rate(examples, setup, given.steps))
                print(f"{setup.name}: {rates[setup.name][-1]:.0f} batches/s", flush=True)
    document = {"machine": machine(), "steps": given.steps, "batches_per_s": rates}
    given.store.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--store", type=Path, default=STORED)
    return parser.parse_args()


def rate(examples: Path, setup: Setup, steps: int) -> float:
    """Return batches per second of one run, between the times of its summaries."""
    words = ["tfdeploy", "run", "--json", "--", f"--steps={steps}", *setup.words]
    subprocess.run(["tfdeploy", "trust"], cwd=examples / setup.recipe, check=True)
    done = subprocess.run(
        words, cwd=examples / setup.recipe, stdout=subprocess.PIPE, text=True, check=True
    )
    collected = Path(json.loads(done.stdout)["collected"])
    points = [point for point in scalars.read_events(collected)["loss"] if point.step >= WARM_UP]
    first, last = points[0], points[-1]
    return (last.step - first.step) * setup.batches / (last.time_s - first.time_s)


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "gpus": 0,
        "load_per_core": round(os.getloadavg()[1] / (os.cpu_count() or 1), 1),
    }


def table(document: dict[str, Any]) -> str:
    """Return the table of docs/concepts.md."""
    rows = [
        f"| {name} | {statistics.median(rates):.0f} | {min(rates):.0f} to {max(rates):.0f} |"
        for name, rates in document["batches_per_s"].items()
    ]
    return "\n".join(["| setup | median | range |", "|---|---|---|", *rows])


if __name__ == "__main__":
    main()
