"""The document of `compare`. Its values are smoothed, and null if they are not finite. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.experiments.repeats import spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tfdeploy.experiments.comparing.comparison import Comparison, Group, RunSeries
    from tfdeploy.experiments.training.metrics import Metric

    BestIs = Literal["highest", "lowest"]


@dataclass(frozen=True)
class TargetPoint:
    """When a run first reached the target."""

    step: int
    """The step."""
    seconds: float | None
    """The seconds since the run's first scalar."""


@dataclass(frozen=True, kw_only=True)
class ScalarCurve:
    """A scalar over time: lists of equal length."""

    step: tuple[int, ...]
    """The steps."""
    seconds: tuple[float | None, ...]
    """The seconds since the run's first scalar."""
    value: tuple[float | None, ...]
    """The values, as they were reported."""
    smoothed: tuple[float | None, ...]
    """The running mean."""
    examples: tuple[int, ...] | None
    """The examples of all workers since step 0; null without --examples-per-step."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """What a run reached in one metric; a value that is unknown is null."""

    name: str
    """Its name."""
    best_is: BestIs
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
class ComparedRun:
    """One run. Its values are smoothed; a value that is not finite is null."""

    label: str
    """Its label: LABEL=RUN on the command line, or else its name or id."""
    line: str
    """The label of its line in the picture: its own, or that of repeated runs."""
    run: str
    """Its id, or the name of its folder."""
    folder: Path
    """Its folder on the controller."""
    tasks: Mapping[str, int]
    """The number of tasks of each job; empty if the run has no record."""
    words: tuple[str, ...]
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
    reached: TargetPoint | None
    """When it first reached `target`; null if it never did, or without a target."""
    metrics: list[ComparedMetric]
    """All of its metrics, not only the one that is compared."""
    curve: ScalarCurve
    """All values."""


@dataclass(frozen=True)
class ComparedValue:
    """A value of several runs; null if it is not finite in one of them."""

    median: float | None
    """The median."""
    low: float | None
    """The lowest value."""
    high: float | None
    """The highest value."""


@dataclass(frozen=True, kw_only=True)
class ComparedLine:
    """A line of the picture: one run, or the median and range of repeated runs."""

    label: str
    """Its label."""
    runs: int
    """The number of runs."""
    points: int
    """The number of reported values behind it."""
    last: ComparedValue
    """The last value."""
    best: ComparedValue
    """The best value."""
    reached: int
    """The number of runs that reached `target`; 0 without one."""


@dataclass(frozen=True, kw_only=True)
class CompareDocument:
    """A scalar of several runs."""

    tag: str
    """The name of the scalar."""
    smooth_steps: int
    """The steps of the running mean."""
    best_is: BestIs
    """Whether higher or lower values are better."""
    target: float | None
    """The value of --target."""
    picture: Path
    """The path of the plot."""
    lines: list[ComparedLine]
    """The lines of the plot."""
    runs: list[ComparedRun]
    """The runs."""
    differs_in: tuple[str, ...]
    """What the runs were started with and differ in: the release, the commit, or keys of
    hosts.toml."""


def compare_document(comparison: Comparison, picture: Path) -> CompareDocument:
    groups = comparison.groups
    return CompareDocument(
        tag=comparison.tag,
        smooth_steps=comparison.smooth,
        best_is=_best_is(comparison.rises),
        target=comparison.target,
        picture=picture,
        lines=[_line(group, comparison) for group in groups],
        runs=[_run(run, group.label, comparison) for group in groups for run in group.runs],
        differs_in=comparison.differs_in,
    )


def _best_is(rises: bool) -> BestIs:
    return "highest" if rises else "lowest"


def _line(group: Group, comparison: Comparison) -> ComparedLine:
    return ComparedLine(
        label=group.label,
        runs=len(group.runs),
        points=group.points,
        last=ComparedValue(*spread_of(run.smoothed[-1] for run in group.runs)[:3]),
        best=ComparedValue(*spread_of(map(comparison.best, group.runs))[:3]),
        reached=len(comparison.reached(group)),
    )


def _run(run: RunSeries, line: str, comparison: Comparison) -> ComparedRun:
    target = comparison.target_point(run)
    return ComparedRun(
        label=run.label,
        line=line,
        run=run.run,
        folder=run.folder,
        tasks=run.tasks,
        words=run.words,
        points=len(run.series),
        steps=run.series[-1].step,
        seconds=run.seconds[-1],
        steps_per_s=run.steps_per_s,
        first=run.smoothed[0],
        last=run.smoothed[-1],
        best=comparison.best(run),
        reached=TargetPoint(*target) if target else None,
        metrics=[_metric(metric) for metric in run.metrics],
        curve=ScalarCurve(
            step=run.steps,
            seconds=run.seconds,
            value=run.values,
            smoothed=run.smoothed,
            examples=run.examples,
        ),
    )


def _metric(metric: Metric) -> ComparedMetric:
    training, validation = metric.training, metric.validation
    return ComparedMetric(
        name=metric.name,
        best_is=_best_is(metric.rises),
        last=training.last if training else None,
        best=training.best if training else None,
        validation_last=validation.last if validation else None,
        validation_best=validation.best if validation else None,
    )
