"""How busy the GPUs of a task were: samples from its history, and lines over time.

A host wrote the samples, so every value is checked: agent/reports/history.py has their format.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from statistics import fmean, median
from typing import TYPE_CHECKING

from tfdeploy.experiments.plots import COLOURS, Line
from tfdeploy.experiments.run_report.over_time import GpuSample, TimePanel
from tfdeploy.experiments.training.history import read_lines, with_gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.experiments.run_report.over_time import TrainedRun

    Value = Callable[[GpuSample], float]

MAX_GPUS = 64  # of one task
MAX_MIB = 1 << 24  # of one GPU
MIB_IN_GIB = 1024
CLOCK_SLACK_S = 3600.0  # hosts' clocks differ
MAX_LINES = len(COLOURS)  # more can't be told apart
MAX_BINS = 120


def read(file: Path, begin: float, end: float) -> tuple[GpuSample, ...]:
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


def panels(runs: Sequence[TrainedRun]) -> Iterator[TimePanel]:
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
