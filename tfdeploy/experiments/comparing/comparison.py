"""What `compare` found: the scalar of each run, and the runs of each line. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.formatting.short_repr import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tfdeploy.experiments.scalars import Series

LOSS = "loss"  # the tag of most scripts


@dataclass(frozen=True)
class RunSeries:
    """One run and the scalar that is compared.

    `started_s` is the time of the run's first scalar of any tag, by the clock of the task that
    reported `series`; NaN if a log has no times. `tasks` counts the tasks of each job; it is empty
    if the run has no record. `smoothed` has a value for each point of `series`. A step takes
    `examples_per_step` of all workers together; None if unknown.
    """

    label: str
    run: str
    folder: Path
    tasks: Mapping[str, int]
    started_s: float
    series: Series
    smoothed: tuple[float, ...]
    examples_per_step: int | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(point.step for point in self.series)

    @property
    def seconds(self) -> tuple[float, ...]:
        return tuple(point.time_s - self.started_s for point in self.series)

    @property
    def examples(self) -> tuple[int, ...] | None:
        """The examples of all workers since step 0; None if those of a step are unknown."""
        if self.examples_per_step is None:
            return None
        return tuple(step * self.examples_per_step for step in self.steps)

    @property
    def values(self) -> tuple[float, ...]:
        """The values as they were reported, NaN for none."""
        return values_of(self.series)

    @property
    def steps_per_s(self) -> float:
        """From the first point to the last, with all restarts between them."""
        first, last = self.series[0], self.series[-1]
        duration_s = last.time_s - first.time_s
        return (last.step - first.step) / duration_s if duration_s > 0 else math.nan


@dataclass(frozen=True)
class Group:
    """The runs of one line: a single run, or repeated ones."""

    label: str
    runs: tuple[RunSeries, ...]

    @property
    def points(self) -> int:
        """The number of reported values behind the line."""
        return sum(len(each.series) for each in self.runs)


class Spread(NamedTuple):
    """What repeated runs reached: the median, the lowest and the highest value."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A smoothed value is the mean over `smooth` steps. If `rises`, higher values are better, as
    for an accuracy."""

    __repr__ = short_repr

    tag: str
    smooth: int
    rises: bool
    target: float | None
    groups: tuple[Group, ...]

    @property
    def runs(self) -> tuple[RunSeries, ...]:
        return tuple(each for group in self.groups for each in group.runs)

    @property
    def has_repeats(self) -> bool:
        return any(len(group.runs) > 1 for group in self.groups)

    @property
    def is_loss(self) -> bool:
        return LOSS in self.tag.lower()

    def best(self, run_series: RunSeries) -> float:
        """Return the best smoothed value."""
        numbers = [value for value in run_series.smoothed if not math.isnan(value)]
        return (max if self.rises else min)(numbers, default=math.nan)

    def target_point(self, run_series: RunSeries) -> tuple[int, float] | None:
        """Return the step, and the seconds, at which a smoothed value first reached the target."""
        sign = -1 if self.rises else 1
        for point, value in zip(run_series.series, run_series.smoothed, strict=True):
            if self.target is not None and sign * value <= sign * self.target:
                return point.step, point.time_s - run_series.started_s
        return None

    def reached(self, group: Group) -> tuple[tuple[int, float], ...]:
        """Return the target point of each run of the group that reached the target."""
        found = (self.target_point(each) for each in group.runs)
        return tuple(point for point in found if point)


def spread(group: Group, value_of: Callable[[RunSeries], float]) -> Spread:
    """Return the spread of a value of each run; NaN if one of them is not finite."""
    values = [value_of(each) for each in group.runs]
    if not all(map(math.isfinite, values)):
        return Spread(math.nan, math.nan, math.nan)
    return Spread(median(values), min(values), max(values))


def values_of(series: Series) -> tuple[float, ...]:
    """Return the values, NaN for none."""
    return tuple(math.nan if point.value is None else point.value for point in series)
