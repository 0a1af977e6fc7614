"""What runs report over time, the one time axis of all charts of a report, and how busy the GPUs of
tasks were: samples from their histories, and lines over time.

A host wrote the samples, so every value is checked: agent/reports/history.py has their format.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from tfdeploy.experiments.history import read_lines, with_gaps
from tfdeploy.experiments.plots import COLOURS, Line
from tfdeploy.experiments.scalars import NO_LOSSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.experiments.history import Pause
    from tfdeploy.experiments.scalars import LogLosses, Series

    Value = Callable[["GpuSample"], float]

UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"))
MARGIN = 0.03  # of the axis
MAX_GPUS = 64  # of one task
MAX_MIB = 1 << 24  # of one GPU
MIB_IN_GIB = 1024
CLOCK_SLACK_S = 3600.0  # hosts' clocks differ
MAX_LINES = len(COLOURS)  # more can't be told apart
MAX_BINS = 120


@dataclass(frozen=True)
class GpuSample:
    """All GPUs of a task at one time, in seconds since the epoch. `busy_percent` is their mean, NaN
    if none reports it."""

    at: float
    busy_percent: float
    used_gib: float
    total_gib: float


@dataclass(frozen=True)
class TrainedRun:
    """The scalars of a run, by name, and when it started, in seconds since the epoch. If it has no
    scalars, `log_losses` are those in its log. `gpus` is the use of each task's GPUs. No line is
    drawn across `pauses`."""

    label: str
    started_s: float
    scalars: Mapping[str, Series]
    log_losses: LogLosses = NO_LOSSES
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
    """Yield the sample of a line if it is one. Pure."""
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        values = json.loads(line)
        at, rows = float(values["at"]), values["gpus"]
        if math.isfinite(at) and 0 < len(rows) <= MAX_GPUS and all(map(_is_possible, rows)):
            busy = [float(percent) for _, percent, _, _ in rows if percent is not None]
            yield GpuSample(
                at,
                sum(busy) / len(busy) if busy else math.nan,
                sum(used for _, _, used, _ in rows) / MIB_IN_GIB,
                sum(total for _, _, _, total in rows) / MIB_IN_GIB,
            )


def _is_possible(row: list[float | None]) -> bool:
    """Return whether it has an index, a percentage, and MiB. Raises TypeError or ValueError."""
    _, percent, used, total = row
    has_memory = used is not None and total is not None and 0 <= used <= total <= MAX_MIB
    return has_memory and (percent is None or 0 <= percent <= 100)


def gpu_panels(runs: Sequence[TrainedRun]) -> Iterator[TimePanel]:
    """Yield a panel of the use and one of the memory.

    One run has a line for each task, or their median with a band from the lowest to the highest if
    they are many. Of several runs each has its median and band.
    """
    samples = [sample for run in runs for each in run.gpus.values() for sample in each]
    memory = max((sample.total_gib for sample in samples), default=0.0)
    yield from _panel(runs, "GPU use in %", 100.0, lambda sample: sample.busy_percent)
    yield from _panel(runs, "GPU memory in GiB", memory, lambda sample: sample.used_gib)


def _panel(runs: Sequence[TrainedRun], title: str, top: float, value: Value) -> Iterator[TimePanel]:
    is_alone = len(runs) == 1
    lines = [line for run in runs for line in _lines(run, value, is_alone)]
    if lines:
        labels = [line.label for line in lines] if is_alone else [run.label for run in runs]
        yield TimePanel(title, lines, labels, top or None, legend=is_alone)


def _lines(run: TrainedRun, value: Value, is_alone: bool) -> list[Line]:
    tasks = _binned(run, value)
    if is_alone and len(tasks) <= MAX_LINES:
        lines = [Line(task, [*means], [*means.values()]) for task, means in tasks.items()]
        return [with_gaps(line, run.pauses, run.started_s) for line in lines]
    times = sorted({time for means in tasks.values() for time in means})
    values = [[means[time] for means in tasks.values() if time in means] for time in times]
    label = f"{len(tasks)} tasks: median, lowest and highest" if is_alone else run.label
    low, high = [min(each) for each in values], [max(each) for each in values]
    line = Line(label, times, [median(each) for each in values], low=low, high=high)
    return [with_gaps(line, run.pauses, run.started_s)] if times else []


def _binned(run: TrainedRun, value: Value) -> Mapping[str, Mapping[float, float]]:
    """Return the mean value of each task in each of at most MAX_BINS spans of time, by the middle
    of the span."""
    known = {
        task: [(sample.at - run.started_s, value(sample)) for sample in samples]
        for task, samples in run.gpus.items()
        if any(math.isfinite(value(sample)) for sample in samples)
    }
    times = [time for points in known.values() for time, _ in points]
    if not times:
        return {}
    begin, length = min(times), max(times) - min(times)
    count = min(MAX_BINS, max(map(len, known.values())))
    width = length / count or 1.0
    binned: dict[str, dict[float, float]] = {}
    for task, points in known.items():
        bins: dict[int, list[float]] = {}
        for time, number in points:
            if math.isfinite(number):
                bins.setdefault(min(int((time - begin) / width), count - 1), []).append(number)
        binned[task] = {begin + (n + 0.5) * width: fmean(found) for n, found in bins.items()}
    return binned
