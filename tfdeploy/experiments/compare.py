"""`tfdeploy compare`: a scalar of several collected runs.

It reads what `collect` has fetched: the events in runs/<run>/events/, or else the chief's log.
Values are smoothed, and NaN if they are not known or not finite.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from tfdeploy.config.overrides import check_words
from tfdeploy.errors import RunError
from tfdeploy.experiments import metrics, scalars
from tfdeploy.experiments.collected_runs import find_runs, read_scalars
from tfdeploy.experiments.history import steps_per_s, trained_seconds
from tfdeploy.experiments.metrics import LOSS, is_rising
from tfdeploy.experiments.run_report.redact import show_words
from tfdeploy.experiments.run_report.summary import different_settings
from tfdeploy.experiments.scalars import DEFAULT_WINDOWS, SPEED, smooth_series, values_of
from tfdeploy.formatting.short_repr import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.experiments.collected_runs import CollectedRun
    from tfdeploy.experiments.metrics import Metric
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.run import Run

    BestIs = Literal["highest", "lowest"]

MAX_NAMES = 12


class TargetPoint(NamedTuple):
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
    metrics: tuple[ComparedMetric, ...]
    """All of its metrics, not only the one that is compared."""
    curve: ScalarCurve
    """All values."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A scalar of several runs."""

    __repr__ = short_repr

    tag: str
    """The name of the scalar."""
    smooth_steps: int
    """The steps of the running mean."""
    best_is: BestIs
    """Whether higher or lower values are better."""
    target: float | None
    """The value of --target."""
    runs: tuple[ComparedRun, ...]
    """The runs."""
    differs_in: tuple[str, ...] = ()
    """What the runs were started with and differ in: the release, the commit, or keys of
    hosts.toml."""

    @property
    def different_words(self) -> list[str]:
        """Return the words of each run that not all of them have: an option and its value count as
        one."""
        options = [_options(each.words) for each in self.runs]
        shared = [each for each in options[0] if all(each in other for other in options[1:])]
        shown = shared if len(options) > 1 else []
        return [" ".join(each for each in found if each not in shown) for found in options]

    @property
    def shared_metrics(self) -> dict[str, list[ComparedMetric]]:
        """Return the metrics that all runs have: of each run, in their order."""
        found = [{metric.name: metric for metric in each.metrics} for each in self.runs]
        shared = [name for name in found[0] if all(name in other for other in found)]
        return {name: [each[name] for each in found] for name in shared}


@dataclass(frozen=True)
class _Goal:
    """Which values are better: higher ones if it `rises`, as an accuracy does; and a target."""

    rises: bool
    target: float | None

    def best(self, values: Iterable[float]) -> float:
        numbers = [value for value in values if not math.isnan(value)]
        return (max if self.rises else min)(numbers, default=math.nan)

    def reached(self, steps: Sequence[int], seconds: Sequence[float], values: Sequence[float]
                ) -> TargetPoint | None:  # fmt: skip
        """Return where a value first reached the target."""
        sign = -1 if self.rises else 1
        for step, at_s, value in zip(steps, seconds, values, strict=True):
            if self.target is not None and sign * value <= sign * self.target:
                return TargetPoint(step, at_s)
        return None


def compare(
    hosts: str | Path,
    named: Sequence[str],
    *,
    tag: str | None = None,
    smooth: int | None = None,
    target: float | None = None,
) -> Comparison:
    """Compare runs that are named as `find_runs` takes them. `smooth` is in steps. Raises RunError
    if a run was not collected, or doesn't have the scalar."""
    runs = find_runs(Path(hosts), check_words("named", named))
    found = {each.folder: read_scalars(each) for each in runs}
    chosen = _choose_tag([(each.label, found[each.folder]) for each in runs], tag)
    longest = max(each[chosen][-1].step - each[chosen][0].step for each in found.values())
    window = max(1, longest // DEFAULT_WINDOWS if smooth is None else smooth)
    smoothed = [smooth_series(found[each.folder][chosen], window) for each in runs]
    goal = _Goal(is_rising(chosen, smoothed), target)
    return Comparison(
        tag=chosen,
        smooth_steps=window,
        best_is=_best_is(goal.rises),
        target=target,
        runs=tuple(_run(each, found[each.folder], chosen, window, goal) for each in runs),
        differs_in=_differs_in([each.record for each in runs if each.record]),
    )


def _differs_in(runs: Sequence[Run]) -> tuple[str, ...]:
    rows = different_settings(runs, lambda text: text) if runs else ()
    return tuple(row.key for row in rows if row.differs)


def _choose_tag(runs: Sequence[tuple[str, Mapping[str, Series]]], wanted: str | None) -> str:
    for label, found in runs:
        if wanted and wanted not in found:
            raise RunError(f'{label} has no scalar "{wanted}"; it has {_listed(found)}')
    shared = set.intersection(*(set(found) for _, found in runs))
    main = metrics.main_loss(sorted(shared))
    tags = [wanted] if wanted else [main] if main else sorted(shared - {SPEED})
    if not tags:
        lines = (f"{label} has {_listed(found)}" for label, found in runs)
        raise RunError("the runs have no scalar in common", "\n  ".join(lines))
    if len(tags) > 1:
        message = f'the runs have no "{LOSS}" in common, but {_listed(tags)}'
        raise RunError(message, "choose one: --tag NAME")
    return tags[0]


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_NAMES} more" if len(ordered) > MAX_NAMES else ""
    return f"{', '.join(ordered[:MAX_NAMES])}{more}"


def _run(
    run: CollectedRun, found: Mapping[str, Series], tag: str, window: int, goal: _Goal
) -> ComparedRun:
    series, times = found[tag], scalars.step_times(scalars.of_same_clock(found, tag))
    smoothed, pauses = smooth_series(series, window), run.pauses()
    started_s = times[0].time_s if times else math.nan
    steps = tuple(point.step for point in series)
    seconds = trained_seconds([started_s, *(point.time_s for point in series)], pauses)[1:]
    placements = run.record.plan.placements if run.record else ()
    return ComparedRun(
        label=run.label,
        run=run.id,
        folder=run.folder,
        tasks=Counter(placement.task.job for placement in placements),
        words=tuple(show_words(run.words)),
        points=len(series),
        steps=steps[-1],
        seconds=seconds[-1],
        steps_per_s=steps_per_s(series, pauses),
        first=smoothed[0],
        last=smoothed[-1],
        best=goal.best(smoothed),
        reached=goal.reached(steps, seconds, smoothed),
        metrics=tuple(_metric(metric) for metric in metrics.metrics(found)),
        curve=ScalarCurve(step=steps, seconds=seconds, value=values_of(series), smoothed=smoothed),
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


def _best_is(rises: bool) -> BestIs:
    return "highest" if rises else "lowest"


def _options(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        is_value = found and found[-1].startswith("-") and " " not in found[-1]
        if is_value and "=" not in found[-1] and not word.startswith("--"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found
