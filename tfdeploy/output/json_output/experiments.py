"""The document of compare."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tfdeploy.experiments.compare import Comparison, RunSeries


@dataclass(frozen=True, kw_only=True)
class Reached(Shape):
    """When a run first reached the target."""

    step: int
    """The step."""
    seconds: float | None
    """The seconds since the run's first scalar."""


@dataclass(frozen=True, kw_only=True)
class Curve(Shape):
    """A scalar over time: four lists of equal length."""

    step: list[int]
    """The steps."""
    seconds: list[float | None]
    """The seconds since the run's first scalar."""
    value: list[float | None]
    """The values, as they were reported."""
    smoothed: list[float | None]
    """The running mean."""


@dataclass(frozen=True, kw_only=True)
class ComparedRun(Shape):
    """One run. Its values are smoothed; a value that is not finite is null."""

    label: str
    """Its label: LABEL=RUN on the command line, or else its name."""
    run: str
    """Its id, or the name of its folder."""
    folder: str
    """Its folder on the controller."""
    tasks: dict[str, int]
    """The number of tasks of each job; empty if the run has no record."""
    steps: int
    """The last step."""
    seconds: float | None
    """The seconds from the run's first scalar to its last."""
    steps_per_s: float | None
    """The steps per second, with all restarts between them."""
    first: float | None
    """The first value."""
    last: float | None
    """The last value."""
    best: float | None
    """The best value."""
    reached: Reached | None
    """When it first reached `target`; null if it never did, or without a target."""
    curve: Curve
    """All values."""


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
    runs: list[ComparedRun]
    """The runs."""


def compare_document(comparison: Comparison, picture: Path) -> CompareDocument:
    return CompareDocument(
        tag=comparison.tag,
        smooth_steps=comparison.smooth,
        best_is="highest" if comparison.rises else "lowest",
        target=comparison.target,
        picture=str(picture),
        runs=[_to_compared_run(run, comparison) for run in comparison.runs],
    )


def _to_compared_run(run: RunSeries, comparison: Comparison) -> ComparedRun:
    target = comparison.target_point(run)
    return ComparedRun(
        label=run.label,
        run=run.run,
        folder=str(run.folder),
        tasks=dict(run.tasks),
        steps=run.series[-1].step,
        seconds=_number(run.seconds[-1]),
        steps_per_s=_number(run.steps_per_s),
        first=_number(run.smoothed[0]),
        last=_number(run.smoothed[-1]),
        best=_number(comparison.best(run)),
        reached=Reached(step=target[0], seconds=_number(target[1])) if target else None,
        curve=Curve(
            step=[point.step for point in run.series],
            seconds=_numbers(run.seconds),
            value=_numbers(point.value for point in run.series),
            smoothed=_numbers(run.smoothed),
        ),
    )


def _numbers(values: Iterable[float | None]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
