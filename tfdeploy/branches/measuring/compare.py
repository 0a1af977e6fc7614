"""`tfdeploy compare`: a scalar of several collected runs.

It reads what `collect` has fetched: the events in runs/<run>/events/, or else the chief's log.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfdeploy.branches.measuring import metrics, scalars
from tfdeploy.branches.measuring.collected_runs import find_runs, read_scalars
from tfdeploy.branches.measuring.history import steps_per_s, trained_seconds
from tfdeploy.branches.measuring.metrics import LOSS, is_rising
from tfdeploy.branches.measuring.run_report.summary import different_settings
from tfdeploy.branches.measuring.scalars import SPEED, values_of
from tfdeploy.config.overrides import check_words
from tfdeploy.config.redact import show_words
from tfdeploy.errors import RunError
from tfdeploy.formatting.short_repr import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.branches.measuring.collected_runs import CollectedRun
    from tfdeploy.branches.measuring.metrics import Metric
    from tfdeploy.branches.measuring.scalars import Series

    BestIs = Literal["highest", "lowest"]

MAX_NAMES = 12


@dataclass(frozen=True, kw_only=True)
class ScalarCurve:
    """A scalar over time: lists of equal length."""

    step: tuple[int, ...]
    """The steps."""
    seconds: tuple[float | None, ...]
    """The seconds since the run's first scalar."""
    value: tuple[float | None, ...]
    """The values."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """What a run reached in one metric."""

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
    """One run; a value that is not finite is null."""

    label: str
    """Its LABEL of the command line, else its name or id."""
    run: str
    """Its id, or the name of its folder."""
    folder: Path
    """Its folder on the controller."""
    tasks: Mapping[str, int]
    """The number of tasks of each job."""
    words: tuple[str, ...]
    """The words that its command line added, without secrets."""
    points: int
    """The number of values that it reported."""
    steps: int
    """The last step."""
    seconds: float | None
    """The seconds from the first scalar to the last."""
    steps_per_s: float | None
    """The steps per second, without the time between a stop and a resume."""
    first: float | None
    """The first value."""
    last: float | None
    """The last value."""
    best: float | None
    """The best value."""
    metrics: tuple[ComparedMetric, ...]
    """All of its metrics."""
    curve: ScalarCurve
    """All values."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A scalar of several runs."""

    __repr__ = short_repr

    tag: str
    """The name of the scalar."""
    best_is: BestIs
    """Whether higher or lower values are better."""
    runs: tuple[ComparedRun, ...]
    """The runs."""
    differs_in: tuple[str, ...] = ()
    """The release, commit or keys of hosts.toml in which the runs differ."""

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


def compare(hosts: str | Path, named: Sequence[str], *, tag: str | None = None) -> Comparison:
    """Compare runs that are named as `find_runs` takes them. Raises RunError if a run was not
    collected, or doesn't have the scalar."""
    runs = find_runs(Path(hosts), check_words("named", named))
    found = {each.folder: read_scalars(each) for each in runs}
    chosen = _choose_tag([(each.label, found[each.folder]) for each in runs], tag)
    rises = is_rising(chosen, [values_of(each[chosen]) for each in found.values()])
    settings = different_settings([each.record for each in runs], lambda text: text)
    return Comparison(
        tag=chosen,
        best_is=_best_is(rises),
        runs=tuple(_run(each, found[each.folder], chosen, rises) for each in runs),
        differs_in=tuple(row.key for row in settings if row.differs),
    )


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


def _run(run: CollectedRun, found: Mapping[str, Series], tag: str, rises: bool) -> ComparedRun:
    series, times = found[tag], scalars.step_times(scalars.of_same_clock(found, tag))
    values, pauses = values_of(series), run.pauses()
    known = [value for value in values if not math.isnan(value)]
    started_s = times[0].time_s if times else math.nan
    steps = tuple(point.step for point in series)
    seconds = trained_seconds([started_s, *(point.time_s for point in series)], pauses)[1:]
    return ComparedRun(
        label=run.label,
        run=run.record.id,
        folder=run.folder,
        tasks=Counter(placement.task.job for placement in run.record.tasks),
        words=tuple(show_words(run.record.words)),
        points=len(series),
        steps=steps[-1],
        seconds=seconds[-1],
        steps_per_s=steps_per_s(series, pauses),
        first=values[0],
        last=values[-1],
        best=(max if rises else min)(known, default=math.nan),
        metrics=tuple(_metric(metric) for metric in metrics.metrics(found)),
        curve=ScalarCurve(step=steps, seconds=seconds, value=values),
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
