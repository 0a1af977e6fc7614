"""Turn the use of GPUs into lines over time: one for each task, or one for all of them. Pure."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING

from tfdeploy.experiments.plots import COLOURS, Line
from tfdeploy.experiments.run_report.training.time_axis import TimePanel
from tfdeploy.experiments.training.pauses import with_gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdeploy.experiments.run_report.training.charts import TrainedRun
    from tfdeploy.experiments.run_report.training.gpu_use import GpuSample

    Value = Callable[[GpuSample], float]

MAX_LINES = len(COLOURS)  # more can't be told apart
MAX_BINS = 120


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
