"""What `compare` found: the scalar of each run, and the runs of each line. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.experiments.scalars import values_of
from tfdeploy.experiments.training.metrics import LOSS
from tfdeploy.formatting.short_repr import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.training.metrics import Metric


@dataclass(frozen=True)
class RunSeries:
    """One run and the scalar that is compared.

    `tasks` counts the tasks of each job; it is empty if the run has no record. `words` are those of
    its command line, without secrets. `smoothed` has a value for each point of `series`, `seconds`
    the training time since the run's first scalar of any tag, by the clock of the task that
    reported `series`; NaN if a log has no times. `steps_per_s` is the mean speed, with all restarts
    and without pauses. A step takes `examples_per_step` of all workers together; None if unknown.
    """

    label: str
    run: str
    folder: Path
    tasks: Mapping[str, int]
    words: tuple[str, ...]
    series: Series
    smoothed: tuple[float, ...]
    seconds: tuple[float, ...]
    steps_per_s: float
    metrics: tuple[Metric, ...] = ()
    examples_per_step: int | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(point.step for point in self.series)

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


@dataclass(frozen=True)
class Group:
    """The runs of one line: a single run, or repeated ones."""

    label: str
    runs: tuple[RunSeries, ...]

    @property
    def points(self) -> int:
        """The number of reported values behind the line."""
        return sum(len(each.series) for each in self.runs)


@dataclass(frozen=True)
class Comparison:
    """A smoothed value is the mean over `smooth` steps. If `rises`, higher values are better, as
    for an accuracy. `differs_in` are the release, the commit, or the keys of hosts.toml in which
    the runs differ."""

    __repr__ = short_repr

    tag: str
    smooth: int
    rises: bool
    target: float | None
    groups: tuple[Group, ...]
    differs_in: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[RunSeries, ...]:
        return tuple(each for group in self.groups for each in group.runs)

    @property
    def different_words(self) -> list[str]:
        """Return the words of each run that not all of them have: an option and its value count as
        one."""
        options = [_options(each.words) for each in self.runs]
        shared = [each for each in options[0] if all(each in other for other in options[1:])]
        shown = shared if len(options) > 1 else []
        return [" ".join(each for each in found if each not in shown) for found in options]

    @property
    def shared_metrics(self) -> dict[str, list[Metric]]:
        """Return the metrics that all runs have: of each run, in their order."""
        found = [{metric.name: metric for metric in each.metrics} for each in self.runs]
        shared = [name for name in found[0] if all(name in other for other in found)]
        return {name: [each[name] for each in found] for name in shared}

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
        points = zip(run_series.steps, run_series.seconds, run_series.smoothed, strict=True)
        for step, seconds, value in points:
            if self.target is not None and sign * value <= sign * self.target:
                return step, seconds
        return None

    def reached(self, group: Group) -> tuple[tuple[int, float], ...]:
        """Return the target point of each run of the group that reached the target."""
        found = (self.target_point(each) for each in group.runs)
        return tuple(point for point in found if point)


def _options(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        is_value = found and found[-1].startswith("-") and " " not in found[-1]
        if is_value and "=" not in found[-1] and not word.startswith("--"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found
