"""`tfdeploy compare`: a scalar of several collected runs, single ones or repeated ones.

It reads what `collect` has fetched: runs/<run>/events/, or with a pattern the chief's log.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.config.overrides import check_words
from tfdeploy.errors import RunError
from tfdeploy.experiments import scalars
from tfdeploy.experiments.comparing.collected_runs import find_groups, read_scalars
from tfdeploy.experiments.comparing.comparison import Comparison, Group, RunSeries
from tfdeploy.experiments.run_report.redact import show_words
from tfdeploy.experiments.run_report.side_by_side import different_settings
from tfdeploy.experiments.scalars import DEFAULT_WINDOWS, SPEED, smooth_series
from tfdeploy.experiments.training import metrics
from tfdeploy.experiments.training.history import steps_per_s, trained_seconds
from tfdeploy.experiments.training.metrics import LOSS, is_rising
from tfdeploy.own_folder import OwnFolder

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.experiments.comparing.axes import Examples
    from tfdeploy.experiments.comparing.collected_runs import CollectedRun
    from tfdeploy.experiments.scalars import Series

MAX_NAMES = 12
PICTURE = "compare.svg"


def default_picture(hosts: Path) -> Path:
    """Return compare.svg in the folder of the hosts file's runs, if there is one."""
    folder = hosts.parent / runs.FOLDER
    return (folder if folder.is_dir() else Path()) / PICTURE


def default_folder(hosts: Path) -> OwnFolder:
    """Return the folder of the default picture. Raises as `runs.open_runs` does."""
    is_there = (hosts.parent / runs.FOLDER).is_dir()
    return runs.open_runs(hosts.parent) if is_there else OwnFolder.at(Path())


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
    rises = is_rising(chosen, [each.smoothed for group in compared for each in group.runs])
    records = [each.record for each in runs if each.record]
    rows = different_settings(records, lambda text: text) if records else ()
    differs_in = tuple(row.key for row in rows if row.differs)
    return Comparison(chosen, window, rises, target, compared, differs_in)


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


def _run_series(
    collected_run: CollectedRun, found: Mapping[str, Series], tag: str, window: int
) -> RunSeries:
    steps, series = scalars.step_times(scalars.of_same_clock(found, tag)), found[tag]
    started_s = steps[0].time_s if steps else math.nan
    paused = collected_run.pauses()
    placements = collected_run.record.plan.placements if collected_run.record else ()
    return RunSeries(
        label=collected_run.label,
        run=collected_run.id,
        folder=collected_run.folder,
        tasks=Counter(placement.task.job for placement in placements),
        words=tuple(show_words(collected_run.words)),
        series=series,
        smoothed=smooth_series(series, window),
        seconds=trained_seconds([started_s, *(point.time_s for point in series)], paused)[1:],
        steps_per_s=steps_per_s(series, paused),
        metrics=metrics.metrics(found),
    )
