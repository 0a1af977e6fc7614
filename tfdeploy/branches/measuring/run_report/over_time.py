"""What runs report over time, the one time axis of all charts of a report, and how busy the GPUs of
tasks were: samples from their histories, and lines over time.

A host wrote the samples, so every value is checked: agent/reports/history.py has their format.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring.history import read_lines, with_gaps
from tfdeploy.branches.measuring.plots import COLOURS, Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.branches.measuring.history import Pause
    from tfdeploy.branches.measuring.scalars import Series

UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"))
MARGIN = 0.03  # of the axis
MAX_GPUS = 64  # of one task
CLOCK_SLACK_S = 3600.0  # hosts' clocks differ
MAX_LINES = len(COLOURS)  # more can't be told apart
MAX_BINS = 120


@dataclass(frozen=True)
class GpuSample:
    """How busy the GPUs of a task were at one time, in seconds since the epoch, on average."""

    at: float
    busy_percent: float


@dataclass(frozen=True)
class TrainedRun:
    """The scalars of a run, by name, and when it started, in seconds since the epoch. If it has no
    scalars, `log_losses` are those in its log. `gpus` is the use of each task's GPUs. No line is
    drawn across `pauses`."""

    label: str
    started_s: float
    scalars: Mapping[str, Series]
    log_losses: Mapping[str, Series] = field(default_factory=dict)
    gpus: Mapping[str, Sequence[GpuSample]] = field(default_factory=dict)
    pauses: Sequence[Pause] = ()


@dataclass(frozen=True)
class TimePanel:
    """Lines over the seconds since the start of their run. `labels` are those of all lines with a
    colour, `top` is the end of a y axis from 0, and `legend` whether the panel needs its own."""

    title: str
    lines: Sequence[Line]
    labels: Sequence[str]
    top: float | None = None
    legend: bool = False


@dataclass(frozen=True)
class TimeAxis:
    """The axis in `unit`, each of `divisor` seconds."""

    limits: tuple[float, float] | None
    divisor: float
    unit: str

    def scale(self, line: Line) -> Line:
        return replace(line, xs=[x / self.divisor for x in line.xs])


def of_all(panels: Sequence[TimePanel]) -> TimeAxis:
    """Return the axis that shows every line of the panels."""
    lines = [line for panel in panels for line in panel.lines]
    times = [x for line in lines for x in line.xs if math.isfinite(x)]
    first, last = min(times, default=0.0), max(times, default=0.0)
    divisor, unit = next(((d, u) for limit, d, u in UNITS if last > limit), (1, "seconds"))
    begin, end = min(first, 0.0) / divisor, last / divisor
    margin = MARGIN * (end - begin)
    return TimeAxis((begin - margin, end + margin) if margin > 0 else None, divisor, unit)


# GPUs


def read_gpus(file: Path, begin: float, end: float) -> tuple[GpuSample, ...]:
    """Return the samples of a file from `begin` to `end`, give or take what clocks differ, in
    order; none if there is no such file. Skips what is not a sample. Raises OSError."""
    samples = [sample for line in read_lines(file) for sample in parse(line)]
    first, last = begin - CLOCK_SLACK_S, end + CLOCK_SLACK_S
    return tuple(sorted((s for s in samples if first <= s.at <= last), key=lambda s: s.at))


def parse(line: bytes) -> Iterator[GpuSample]:
    """Yield the sample of a line if it is one and some GPU reports its use. Pure."""
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        values = json.loads(line)
        at, rows = float(values["at"]), values["gpus"]
        busy = [float(percent) for _, percent, _, _ in rows if percent is not None]
        if math.isfinite(at) and len(rows) <= MAX_GPUS and all(0 <= each <= 100 for each in busy):
            yield GpuSample(at, fmean(busy))


def gpu_panel(runs: Sequence[TrainedRun]) -> TimePanel:
    """Return a panel of the use: one run has a line for each task, or for the mean of many tasks,
    and of several runs each has its mean."""
    is_alone = len(runs) == 1
    lines = [line for run in runs for line in _lines(run, is_alone)]
    labels = [line.label for line in lines] if is_alone else [run.label for run in runs]
    return TimePanel("GPU use in %", lines, labels, 100.0, legend=is_alone)


def _lines(run: TrainedRun, is_alone: bool) -> Iterator[Line]:
    tasks = {
        task: [(each.at - run.started_s, each.busy_percent) for each in samples]
        for task, samples in run.gpus.items()
        if samples
    }
    groups = {task: [points] for task, points in tasks.items()}
    if not is_alone or len(tasks) > MAX_LINES:
        groups = {f"mean of {len(tasks)} tasks" if is_alone else run.label: [*tasks.values()]}
    for label, parts in groups.items():
        means = _means(parts)
        if means:
            yield with_gaps(Line(label, [*means], [*means.values()]), run.pauses, run.started_s)


def _means(tasks: Sequence[Sequence[tuple[float, float]]]) -> dict[float, float]:
    """Return the mean of the values of all tasks in each of at most MAX_BINS spans of time, by the
    middle of the span."""
    points = sorted(point for each in tasks for point in each)
    if not points:
        return {}
    begin, length = points[0][0], points[-1][0] - points[0][0]
    count = min(MAX_BINS, max(map(len, tasks)))
    width = length / count or 1.0
    bins: dict[int, list[float]] = {}
    for at, number in points:
        bins.setdefault(min(int((at - begin) / width), count - 1), []).append(number)
    return {begin + (n + 0.5) * width: fmean(found) for n, found in bins.items()}
