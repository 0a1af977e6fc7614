"""`tfdeploy compare`: a scalar of several collected runs, single ones or repeated ones.

It reads what `collect` has fetched: runs/<run>/events/, or with a pattern the chief's log.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run
from tfdeploy.config.overrides import check_words
from tfdeploy.errors import RunError
from tfdeploy.experiments import scalars
from tfdeploy.experiments.comparing.collected_runs import find_groups, read_scalars
from tfdeploy.experiments.comparing.comparison import LOSS, Comparison, Group, RunSeries, values_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.experiments.comparing.collected_runs import CollectedRun
    from tfdeploy.experiments.comparing.examples import Examples
    from tfdeploy.experiments.scalars import Series

SPEED = "global_step/sec"  # compat.v1's sessions write it by themselves
DEFAULT_WINDOWS = 20  # by default the running mean is over this part of the longest run
MAX_NAMES = 12
PICTURE = "compare.svg"


def default_picture(hosts: Path) -> Path:
    """Return compare.svg in the folder of the hosts file's runs, if there is one."""
    folder = hosts.parent / run.FOLDER
    return (folder if folder.is_dir() else Path()) / PICTURE


def compare(
    hosts: str | Path,
    named: Sequence[str],
    *,
    tag: str | None = None,
    pattern: re.Pattern[str] | None = None,
    smooth: int | None = None,
    target: float | None = None,
    examples: Examples | None = None,
) -> Comparison:
    """Compare runs that are named as `find_groups` takes them. `smooth` is in steps. Raises
    RunError if a run was not collected, or doesn't have the scalar."""
    groups = find_groups(Path(hosts), check_words("named", named))
    runs = [each for group in groups for each in group.runs]
    found = {each.folder: read_scalars(each, pattern) for each in runs}
    chosen = _choose_tag([(each.label, found[each.folder]) for each in runs], tag)
    longest = max(each[chosen][-1].step - each[chosen][0].step for each in found.values())
    window = max(1, longest // DEFAULT_WINDOWS if smooth is None else smooth)
    compared = tuple(
        Group(group.label, tuple(
            _run_series(each, found[each.folder], chosen, window) for each in group.runs
        ))
        for group in groups
    )  # fmt: skip
    if examples:
        compared = examples.count(compared)
    rises = _rises(chosen, [each for group in compared for each in group.runs])
    return Comparison(chosen, window, rises, target, compared)


def _choose_tag(runs: Sequence[tuple[str, Mapping[str, Series]]], wanted: str | None) -> str:
    for label, found in runs:
        if wanted and wanted not in found:
            raise RunError(f'{label} has no scalar "{wanted}"; it has {_listed(found)}')
    shared = set.intersection(*(set(found) for _, found in runs))
    tags = [wanted] if wanted else [LOSS] if LOSS in shared else sorted(shared - {SPEED})
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
    numbers = [Fraction(value) if math.isfinite(value) else None for value in values_of(series)]
    sums = list(accumulate((number or Fraction() for number in numbers), initial=Fraction()))
    odd_counts = list(accumulate((number is None for number in numbers), initial=0))
    begin, means = 0, []
    for end, point in enumerate(series, 1):
        while series[begin].step <= point.step - steps:
            begin += 1
        mean = float((sums[end] - sums[begin]) / (end - begin))
        means.append(math.nan if odd_counts[end] > odd_counts[begin] else mean)
    return tuple(means)
