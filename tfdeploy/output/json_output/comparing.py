"""The document of `compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.experiments.repeats import spread_of
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tfdeploy.experiments.comparing.comparison import Comparison, Group, RunSeries
    from tfdeploy.experiments.repeats import Spread as FoundSpread
    from tfdeploy.experiments.training.metrics import Metric as FoundMetric


@dataclass(frozen=True, kw_only=True)
class Reached(Shape):
    """When a run first reached the target."""

    step: int
    """The step."""
    seconds: float | None
    """The seconds since the run's first scalar."""


@dataclass(frozen=True, kw_only=True)
class Curve(Shape):
    """A scalar over time: lists of equal length."""

    step: list[int]
    """The steps."""
    seconds: list[float | None]
    """The seconds since the run's first scalar."""
    value: list[float | None]
    """The values, as they were reported."""
    smoothed: list[float | None]
    """The running mean."""
    examples: list[int] | None
    """The examples of all workers since step 0; null without --examples-per-step."""


@dataclass(frozen=True, kw_only=True)
class Metric(Shape):
    """What a run reached in one metric; a value that is unknown is null."""

    name: str
    """Its name."""
    best_is: Literal["highest", "lowest"]
    """Whether higher or lower values are better."""
    last: float | None
    """The last value of the training."""
    best: float | None
    """The best value of the training."""
    validation_last: float | None
    """The last value of the validation."""
    validation_best: float | None
    """The best value of the validation."""


@dataclass(frozen=True, kw_only=True)
class ComparedRun(Shape):
    """One run. Its values are smoothed; a value that is not finite is null."""

    label: str
    """Its label: LABEL=RUN on the command line, or else its name or id."""
    line: str
    """The label of its line in the picture: its own, or that of repeated runs."""
    run: str
    """Its id, or the name of its folder."""
    folder: str
    """Its folder on the controller."""
    tasks: dict[str, int]
    """The number of tasks of each job; empty if the run has no record."""
    words: list[str]
    """The words that its command line added, without secrets."""
    points: int
    """The number of values that it reported."""
    steps: int
    """The last step."""
    seconds: float | None
    """The seconds of training from the run's first scalar to its last."""
    steps_per_s: float | None
    """The steps per second, with all restarts, without the time between a stop and a resume."""
    first: float | None
    """The first value."""
    last: float | None
    """The last value."""
    best: float | None
    """The best value."""
    reached: Reached | None
    """When it first reached `target`; null if it never did, or without a target."""
    metrics: list[Metric]
    """All of its metrics, not only the one that is compared."""
    curve: Curve
    """All values."""


@dataclass(frozen=True, kw_only=True)
class Spread(Shape):
    """A value of several runs; null if it is not finite in one of them."""

    median: float | None
    """The median."""
    low: float | None
    """The lowest value."""
    high: float | None
    """The highest value."""


@dataclass(frozen=True, kw_only=True)
class ComparedLine(Shape):
    """A line of the picture: one run, or the median and range of repeated runs."""

    label: str
    """Its label."""
    runs: int
    """The number of runs."""
    points: int
    """The number of reported values behind it."""
    last: Spread
    """The last value."""
    best: Spread
    """The best value."""
    reached: int
    """The number of runs that reached `target`; 0 without one."""


@dataclass(frozen=True, kw_only=True)
class CompareDocument(Shape):
    """A scalar of several runs."""

    tag: str
    """The name of the scalar."""
    smooth_steps: int
    """The steps of the running mean."""
    best_is: Literal["highest", "lowest"]
    """Whether higher or lower values are better."""
    target: float | None
    """The value of --target."""
    picture: str
    """The path of the plot."""
    lines: list[ComparedLine]
    """The lines of the plot."""
    runs: list[ComparedRun]
    """The runs."""


def compare_document(comparison: Comparison, picture: Path) -> CompareDocument:
    return CompareDocument(
        tag=comparison.tag,
        smooth_steps=comparison.smooth,
        best_is="highest" if comparison.rises else "lowest",
        target=comparison.target,
        picture=str(picture),
        lines=[_to_compared_line(group, comparison) for group in comparison.groups],
        runs=[
            _to_compared_run(run, group.label, comparison)
            for group in comparison.groups
            for run in group.runs
        ],
    )


def _to_compared_line(group: Group, comparison: Comparison) -> ComparedLine:
    return ComparedLine(
        label=group.label,
        runs=len(group.runs),
        points=group.points,
        last=_to_spread(spread_of(run.smoothed[-1] for run in group.runs)),
        best=_to_spread(spread_of(map(comparison.best, group.runs))),
        reached=len(comparison.reached(group)),
    )


def _to_spread(found: FoundSpread) -> Spread:
    low, high = _number(found.low), _number(found.high)
    return Spread(median=_number(found.median), low=low, high=high)


def _to_compared_run(run: RunSeries, line: str, comparison: Comparison) -> ComparedRun:
    target = comparison.target_point(run)
    return ComparedRun(
        label=run.label,
        line=line,
        run=run.run,
        folder=str(run.folder),
        tasks=dict(run.tasks),
        words=list(run.words),
        points=len(run.series),
        steps=run.series[-1].step,
        seconds=_number(run.seconds[-1]),
        steps_per_s=_number(run.steps_per_s),
        first=_number(run.smoothed[0]),
        last=_number(run.smoothed[-1]),
        best=_number(comparison.best(run)),
        reached=Reached(step=target[0], seconds=_number(target[1])) if target else None,
        metrics=[_to_metric(metric) for metric in run.metrics],
        curve=Curve(
            step=list(run.steps),
            seconds=_numbers(run.seconds),
            value=_numbers(run.values),
            smoothed=_numbers(run.smoothed),
            examples=None if run.examples is None else list(run.examples),
        ),
    )


def _to_metric(found: FoundMetric) -> Metric:
    training, validation = found.training, found.validation
    return Metric(
        name=found.name,
        best_is="highest" if found.rises else "lowest",
        last=_number(training.last if training else None),
        best=_number(training.best if training else None),
        validation_last=_number(validation.last if validation else None),
        validation_best=_number(validation.best if validation else None),
    )


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
