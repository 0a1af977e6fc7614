"""Questions to the raw data, which both the figures and the tables ask."""

from __future__ import annotations

from statistics import median
from typing import Any, NamedTuple

import numpy as np

Run = dict[str, Any]
TARGET = 0.3


class Spread(NamedTuple):
    """The median of the seeds' values, the lowest and the highest one, and their number."""

    middle: float
    low: float
    high: float
    count: int


def where(runs: list[Run], **wanted: object) -> list[Run]:
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values), len(values))


def losses(runs: list[Run]) -> Spread:
    return spread([run["loss"] for run in runs])


def reached(run: Run, axis: str = "time") -> float | None:
    """Return the axis' value at the first point of the curve with TARGET; None if there is none."""
    curve = run["curve"]
    pairs = zip(curve[axis], curve["loss"], strict=True)
    return next((value for value, loss in pairs if loss <= TARGET), None)


def slow_share(run: Run) -> float:
    """Return the last worker's share of the batches; it is the slowed one."""
    return run["shares"][-1] / sum(run["shares"])


def band(runs: list[Run], axis: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the axis' values, and the median, lowest and highest loss of the runs at each.

    The runs have different values on the axis: each is interpolated.
    """
    end = min(run["curve"][axis][-1] for run in runs)
    xs = np.linspace(0, end, 50)
    ys = [np.interp(xs, run["curve"][axis], run["curve"]["loss"]) for run in runs]
    return xs, np.median(ys, 0), np.min(ys, 0), np.max(ys, 0)
