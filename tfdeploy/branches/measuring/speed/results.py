"""Speed of the runs of a sweep: steps per second, and the speed-up over the smallest cell. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.branches.measuring.scalars import Series

# The first part of the time, in which sessions, queues and caches reach their normal speed.
WARM_UP = 0.25
MIN_RUNS = 3  # of two, the ranges of equal things are separate in one of three cases

MEASURED = "measured"
ENDED = "ended"
FAILED = "failed"


@dataclass(frozen=True, order=True)
class Cell:
    """Numbers of tasks."""

    KEYS = ("ps", "workers")

    workers: int
    """The number of workers."""
    ps: int
    """The number of ps."""

    def __str__(self) -> str:
        return f"{self.ps} ps, {format_count(self.workers, 'worker')}"


class Rate(NamedTuple):
    """The speed of a run."""

    steps_per_s: float
    """The steps per second."""
    seconds: float
    """The seconds that were measured, after the warm-up."""
    source: str = "events"
    """`events` or `log`: where the steps were read."""


@dataclass(frozen=True)
class Result:
    """One run of a cell. Only the rates of measured runs are compared."""

    KEYS = ("repeat", "run", "result", "reason", "rate")
    MERGED: ClassVar = {"rate": Rate}

    cell: Cell
    run: str
    """Its id."""
    result: str
    """`measured`, `ended` before its time, or `failed`."""
    reason: str = ""
    """Why it ended or failed."""
    rate: Rate | None = None
    repeat: int = 1
    """Its number among the cell's runs, from 1."""


class Spread(NamedTuple):
    """The median of `n` measurements, and the smallest and the largest of them."""

    median: float
    low: float
    high: float
    n: int

    def scaled(self, factor: float) -> Spread:
        """Return all values times a positive factor."""
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.n)

    def over(self, base: Spread) -> Spread:
        """Return the ratio of the medians, between the smallest and the largest possible ratio of
        one measurement of each."""
        ratios = (self.median / base.median, self.low / base.high, self.high / base.low)
        return Spread(*ratios, min(self.n, base.n))

    @property
    def is_enough(self) -> bool:
        """Whether there are enough measurements to compare them with others."""
        return self.n >= MIN_RUNS

    def differs_from(self, other: Spread) -> bool:
        """Return whether both have enough measurements and their ranges don't overlap.

        Of two equal things this says so by chance, of one pair in C(2n, n) / 2: in ten if each is
        measured three times, in 126 if five times.
        """
        overlaps = self.low <= other.high and other.low <= self.high
        return self.is_enough and other.is_enough and not overlaps


@dataclass(frozen=True)
class CellResults:
    """All runs of a cell so far, at least one, in the order of their repeats."""

    cell: Cell
    runs: tuple[Result, ...]

    @property
    def measured(self) -> tuple[Result, ...]:
        return tuple(run for run in self.runs if run.result == MEASURED)

    @property
    def failure(self) -> Result | None:
        """The first run that was not measured."""
        return next((run for run in self.runs if run.result in (ENDED, FAILED)), None)

    @property
    def result(self) -> str:
        return MEASURED if self.measured else self.runs[-1].result

    @property
    def steps_per_s(self) -> Spread | None:
        rates = [run.rate.steps_per_s for run in self.measured if run.rate]
        return Spread(median(rates), min(rates), max(rates), len(rates)) if rates else None


@dataclass(frozen=True)
class Sweep:
    """All results so far. If `synchronous`, a step takes a batch from each worker."""

    results: Sequence[Result]
    synchronous: bool = False

    def __iter__(self) -> Iterator[CellResults]:
        ordered = sorted(self.results, key=lambda result: (result.cell, result.repeat))
        for cell, runs in groupby(ordered, key=lambda result: result.cell):
            yield CellResults(cell, tuple(runs))

    @property
    def measured(self) -> tuple[CellResults, ...]:
        return tuple(each for each in self if each.measured)

    @property
    def base(self) -> CellResults | None:
        """The measured cell with the fewest workers, and of these with the fewest ps."""
        return next(iter(self.measured), None)

    def batches_per_s(self, results: CellResults) -> Spread | None:
        """Return the batches of all workers per second; None if the cell was not measured."""
        steps = results.steps_per_s
        return steps.scaled(results.cell.workers) if steps and self.synchronous else steps

    def speedup(self, results: CellResults) -> Spread | None:
        """Return the speed-up over the base: that of the base is 1, by definition."""
        over = self.base
        speed, base_speed = self.batches_per_s(results), over and self.batches_per_s(over)
        if speed and over and over.cell == results.cell:
            return Spread(1.0, 1.0, 1.0, speed.n)
        return speed.over(base_speed) if speed and base_speed else None

    def efficiency(self, results: CellResults) -> float | None:
        """Return which part of the ideal speed-up was reached."""
        speedup, over = self.speedup(results), self.base
        return (
            speedup.median * over.cell.workers / results.cell.workers if speedup and over else None
        )


def rate(series: Series, source: str = "events") -> Rate | None:
    """Return the rate after the warm-up, or None if fewer than two times are left."""
    if not series:
        return None
    begin = series[0].time_s + WARM_UP * (series[-1].time_s - series[0].time_s)
    points = [point for point in series if point.time_s >= begin]
    seconds = points[-1].time_s - points[0].time_s
    steps = points[-1].step - points[0].step
    return Rate(steps / seconds, seconds, source) if seconds > 0 else None
