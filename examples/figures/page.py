"""docs/recipes.md and its picture, from the raw data."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from figures import draw, real
from figures.prose import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    Runs = list[dict[str, Any]]

FEW, MANY = real.WORKERS
FAILS = 1.0  # a loss above it: the training has not learned
FOLDERS = {"downpour-sgd": "downpour", "ssgd-backup": "sync_replicas"}
IDEAS = {
    "hogwild": "each gradient applied at once, no locks; clipped",
    "downpour": "own copy, the sum of a window pushed, Adagrad on the ps",
    "downpour-sgd": "the same, SGD on the ps",
    "adag": "own copy, the mean of a window pushed",
    "dynsgd": "the sum of a window, divided by its staleness + 1",
    "aeasgd": "own copy, pulled to the centre and pulling it",
    "aeamsgd": "the same, with momentum",
    "ssgd": "synchronous, one round per batch",
    "ssgd-backup": "the same, without waiting for the slowest worker",
    "sagn": "synchronous, one round per window",
}


def write() -> None:
    data = real.read()
    (real.FOLDER / "real.svg").write_text(draw.svg(draw.curves(data)))
    (real.DOCS / "recipes.md").write_text(render(data))


def render(data: dict[str, Any]) -> str:
    turns = [name for name in data["rates"] if real.taking_turns(data, name)]
    ranked = sorted(data["rates"], key=lambda name: middle(real.overlapping(data, name, MANY)))
    count = data["constants"]["repeats"]
    return PAGE.format(
        real=data["constants"],
        few=FEW,
        workers=MANY,
        batches=real.BATCHES,
        ideas=rows([name_of(name), idea] for name, idea in IDEAS.items()),
        real_rows=rows(real_row(data, name) for name in ranked),
        turn_rows=rows(turn_row(data, name) for name in turns),
        learn_in_turns=", ".join(name for name in turns if learns_in_turns(data, name)),
        backup=rows(map(backup_row, data["backup"])),
        repeats="1 run" if count == 1 else f"{count} runs",
        **backup_cost(data),
    )


def rows(cells: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def name_of(name: str) -> str:
    return f"[{name}](../examples/{FOLDERS.get(name, name)}/)"


def loss(value: float) -> str:
    return "≥ 4" if value >= draw.HIGHEST else f"{value:.3f}"


def middle(runs: Runs) -> float:
    return median(run["loss"] for run in runs)


def losses(runs: Runs) -> str:
    """Return the median and the range, such as 0.062 (0.055 to 0.069)."""
    found = [run["loss"] for run in runs]
    return f"{loss(median(found))} ({loss(min(found))} to {loss(max(found))})"


def shares(runs: Runs) -> str:
    """Return the smallest and the largest share of a worker."""
    found = [100 * own / sum(run["shares"]) for run in runs for own in run["shares"]]
    return f"{min(found):.0f} to {max(found):.0f} %"


def real_row(data: dict[str, Any], name: str) -> list[str]:
    few, many = (real.overlapping(data, name, workers) for workers in real.WORKERS)
    return [name, f"{data['rates'][name]:g}", losses(few), losses(many), shares(many)]


def turn_row(data: dict[str, Any], name: str) -> list[str]:
    turns = real.taking_turns(data, name)
    return [name, losses(real.overlapping(data, name, MANY)), losses(turns), shares(turns)]


def learns_in_turns(data: dict[str, Any], name: str) -> bool:
    """Whether a recipe fails if all workers compute at the same time, and learns if they do not."""
    together = min(run["loss"] for run in real.overlapping(data, name, MANY))
    return together > FAILS >= max(run["loss"] for run in real.taking_turns(data, name))


def backup_row(run: dict[str, Any]) -> list[str]:
    own = ["-" if each is None else str(each) for each in run["own"]]
    return [str(run["backup"]), str(run["steps"]), *own, f"{run['seconds']:.1f}"]


def backup_cost(data: dict[str, Any]) -> dict[str, int]:
    """Return how many batches the first run with a backup worker computed, and how many it used."""
    run = next(run for run in data["backup"] if run["backup"])
    used = run["steps"] * (len(run["own"]) - run["backup"])
    return {"backup_computed": sum(map(int, run["own"])), "backup_used": used}
