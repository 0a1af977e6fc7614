"""`tfdeploy compare`: a scalar of several collected runs, over steps and over time.

It reads what `collect` has fetched: runs/<run>/events/, or with a pattern the chief's log.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run
from tfdeploy.errors import RunError
from tfdeploy.experiments import scalars
from tfdeploy.experiments.collected_runs import find_runs, read_scalars
from tfdeploy.experiments.plots import Line, Panel

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.experiments.collected_runs import CollectedRun
    from tfdeploy.experiments.scalars import Series

LOSS = "loss"  # the tag of most scripts
SPEED = "global_step/sec"  # compat.v1's sessions write it by themselves
DEFAULT_WINDOWS = 20  # by default the running mean is over this part of the longest run
MAX_NAMES = 12
PICTURE = "compare.svg"


@dataclass(frozen=True)
class RunSeries:
    """One run and the scalar that is compared.

    `started_s` is the time of the run's first scalar of any tag, by the clock of the task that
    reported `series`; NaN if a log has no times. `tasks` counts the tasks of each job; it is empty
    if the run has no record. `smoothed` has a value for each point of `series`.
    """

    label: str
    run: str
    folder: Path
    tasks: Mapping[str, int]
    started_s: float
    series: Series
    smoothed: tuple[float, ...]

    @property
    def seconds(self) -> tuple[float, ...]:
        return tuple(point.time_s - self.started_s for point in self.series)

    @property
    def steps_per_s(self) -> float:
        """From the first point to the last, with all restarts between them."""
        first, last = self.series[0], self.series[-1]
        duration_s = last.time_s - first.time_s
        return (last.step - first.step) / duration_s if duration_s > 0 else math.nan


@dataclass(frozen=True)
class Comparison:
    """A smoothed value is the mean over `smooth` steps. If `rises`, higher values are better, as
    for an accuracy."""

    tag: str
    smooth: int
    rises: bool
    target: float | None
    runs: tuple[RunSeries, ...]

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


def default_picture(hosts: Path) -> Path:
    """Return compare.svg in the folder of the hosts file's runs, if there is one."""
    folder = hosts.parent / run.FOLDER
    return (folder if folder.is_dir() else Path()) / PICTURE


def compare(
    hosts: Path,
    named: Sequence[str],
    *,
    tag: str | None = None,
    pattern: re.Pattern[str] | None = None,
    smooth: int | None = None,
    target: float | None = None,
) -> Comparison:
    """Compare runs that are named as `find_runs` takes them. `smooth` is in steps. Raises RunError
    if a run was not collected, or doesn't have the scalar."""
    runs = find_runs(hosts, named)
    by_label = {each.label: read_scalars(each, pattern) for each in runs}
    chosen = _choose_tag(by_label, tag)
    longest = max(found[chosen][-1].step - found[chosen][0].step for found in by_label.values())
    window = max(1, longest // DEFAULT_WINDOWS if smooth is None else smooth)
    compared = tuple(_run_series(each, by_label[each.label], chosen, window) for each in runs)
    return Comparison(chosen, window, _rises(chosen, compared), target, compared)


def _choose_tag(by_label: Mapping[str, Mapping[str, Series]], wanted: str | None) -> str:
    for label, found in by_label.items():
        if wanted and wanted not in found:
            raise RunError(f'{label} has no scalar "{wanted}"; it has {_listed(found)}')
    shared = set.intersection(*(set(found) for found in by_label.values()))
    tags = [wanted] if wanted else [LOSS] if LOSS in shared else sorted(shared - {SPEED})
    if not tags:
        lines = (f"{label} has {_listed(found)}" for label, found in by_label.items())
        raise RunError("the runs have no scalar in common", "\n  ".join(lines))
    if len(tags) > 1:
        message = f'the runs have no "{LOSS}" in common, but {_listed(tags)}'
        raise RunError(message, "choose one: --tag NAME")
    return tags[0]


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_NAMES} more" if len(ordered) > MAX_NAMES else ""
    return f"{', '.join(ordered[:MAX_NAMES])}{more}"


def _run_series(
    collected_run: CollectedRun, found: Mapping[str, Series], tag: str, window: int
) -> RunSeries:
    steps = scalars.step_times(scalars.of_same_clock(found, tag))
    placements = collected_run.record.plan.placements if collected_run.record else ()
    return RunSeries(
        label=collected_run.label,
        run=collected_run.id,
        folder=collected_run.folder,
        tasks=Counter(placement.task.job for placement in placements),
        started_s=steps[0].time_s if steps else math.nan,
        series=found[tag],
        smoothed=smooth_series(found[tag], window),
    )


def _rises(tag: str, runs: Sequence[RunSeries]) -> bool:
    """Return whether higher is better: the tag is no loss, and most runs end higher than they
    started."""
    risen = [each.smoothed[-1] > each.smoothed[0] for each in runs]
    return LOSS not in tag.lower() and 2 * sum(risen) > len(runs)


def smooth_series(series: Series, steps: int) -> tuple[float, ...]:
    """Return, for each point, the mean of the values in the last `steps` steps. NaN and infinity
    make the means of their window NaN.

    The sums are exact fractions: with floats, one huge loss would distort every later mean.
    """
    numbers = [Fraction(value) if math.isfinite(value) else None for value in _values(series)]
    sums = list(accumulate((number or Fraction() for number in numbers), initial=Fraction()))
    odd_counts = list(accumulate((number is None for number in numbers), initial=0))
    begin, means = 0, []
    for end, point in enumerate(series, 1):
        while series[begin].step <= point.step - steps:
            begin += 1
        mean = float((sums[end] - sums[begin]) / (end - begin))
        means.append(math.nan if odd_counts[end] > odd_counts[begin] else mean)
    return tuple(means)


def panels(comparison: Comparison, log: str = "") -> tuple[Panel, ...]:
    """Return a panel over steps and, if any run has times, one over time."""
    runs, tag = comparison.runs, comparison.tag
    over_steps = [_line(each, [point.step for point in each.series]) for each in runs]
    over_time = [_line(each, each.seconds) for each in runs if math.isfinite(each.started_s)]
    time_panel = Panel("", "seconds since the run's first event", tag, over_time, log=log)
    return Panel("", "step", tag, over_steps, log=log), *([time_panel] if over_time else [])


def _line(run_series: RunSeries, xs: Sequence[float]) -> Line:
    return Line(run_series.label, xs, run_series.smoothed, _values(run_series.series))


def _values(series: Series) -> list[float]:
    return [math.nan if point.value is None else point.value for point in series]
