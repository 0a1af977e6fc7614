"""Read steps, times and scalars that a training reported, without TensorFlow.

They come from event files (shared/event_scalars.py), or else from what the program prints:
TensorFlow comes without TensorBoard, and Keras writes no events by default. A log has no times: the
losses are over steps, or over the epochs of Keras, and a step's time is that at which its line
arrived.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.folders.own_folder import read_file
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.event_scalars import Point as Point
from tfdeploy.shared.event_scalars import read_scalars
from tfdeploy.shared.log_patterns import ESCAPE, KERAS_BATCH, KERAS_EPOCH, LOSS, STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_FILE_BYTES = 4 << 30
EVALUATOR = re.compile(r"evaluator-\d+(?=/|$)")  # another task, on another host's clock
# The folders of Estimator, Keras and tf_models, and of loops by hand.
EVALUATION = re.compile(r"(^|/)(eval|validation|(val|test)(?=[/_]|$))")
PART = re.compile(r"^(?:.*/)?(?:eval[^/]*/|validation[^/]*/|(?:val|test|train)(?:/|_))")
SPEED = "global_step/sec"  # compat.v1's sessions write it by themselves


Series = tuple[Point, ...]
"""The points of one scalar, with rising steps."""


def read_events(folder: Path) -> dict[str, Series]:
    """Return every scalar of all event files below the folder, by its name.

    The name is the tag alone for the folder that reports the tag most often; an evaluation's folder
    gets it only if no other folder reports the tag. For all other folders the name begins with the
    folder, such as `eval/loss`, and for evaluator tasks always, such as `evaluator-0/eval/loss`.
    Files and events that can't be read are skipped.
    """
    tags: dict[str, dict[str, list[Point]]] = {}
    for file_folder, points in sorted(_read_files(folder), key=lambda file: file[1][0][1].time_s):
        for tag, point in points:
            tags.setdefault(tag, {}).setdefault(file_folder, []).append(point)
    scalars: dict[str, Series] = {}
    for tag, folders in sorted(tags.items()):
        ordered = sorted(folders, key=lambda name: _folder_rank(name, len(folders[name])))
        for name in ordered:
            is_plain = name == ordered[0] and not EVALUATOR.match(name)
            scalars[tag if is_plain else f"{name}/{tag}"] = _with_rising_steps(folders[name])
    return scalars


def _folder_rank(folder: str, points: int) -> tuple[bool, bool, int, str]:
    return bool(EVALUATOR.match(folder)), bool(EVALUATION.search(folder)), -points, folder


def is_validation(name: str) -> bool:
    """Return whether a scalar, by its name, is one of a validation, not of the training."""
    return bool(EVALUATOR.match(name) or EVALUATION.search(name))


def metric_name(name: str) -> str:
    """Return what is measured: the scalar's name without what says by whom, such as `epoch_loss`
    for `validation/epoch_loss`, and `loss` for `train/loss` and `val_loss`."""
    return PART.sub("", EVALUATOR.sub("", name).lstrip("/"))


def of_same_clock(scalars: Mapping[str, Series], name: str) -> dict[str, Series]:
    """Return the named scalar, and all others that the same task reported."""
    task = _evaluator_task(name)
    return {other: series for other, series in scalars.items() if _evaluator_task(other) == task}


def _evaluator_task(name: str) -> str:
    match = EVALUATOR.match(name)
    return match.group() if match else ""


def step_times(scalars: Mapping[str, Series]) -> Series:
    """Return when each step was first reported, by any of the scalars. The points have no values;
    their steps and times rise."""
    reports = sorted((point.time_s, point.step) for series in scalars.values() for point in series
                     if math.isfinite(point.time_s))  # fmt: skip
    points: list[Point] = []
    for time_s, step in reports:
        if not points or step > points[-1].step:
            points.append(Point(step, time_s, None))
    return tuple(points)


def _with_rising_steps(points: Iterable[Point]) -> Series:
    """Drop what a restarted training had reported after the checkpoint from which it continued."""
    series: list[Point] = []
    for point in points:
        while series and series[-1].step >= point.step:
            series.pop()
        series.append(point)
    return tuple(series)


def values_of(series: Sequence[Point]) -> tuple[float, ...]:
    """Return the values, NaN for none."""
    return tuple(math.nan if point.value is None else point.value for point in series)


def _read_files(folder: Path) -> Iterator[tuple[str, list[tuple[str, Point]]]]:
    """Yield the relative folder of each event file that has scalars, and its (tag, point) pairs."""
    for path in sorted(folder.rglob(f"*{EVENTS}*")):
        if path.is_file() and not path.is_symlink():
            points = list(read_scalars(read_file(path, MAX_FILE_BYTES)))
            if points:
                yield path.parent.relative_to(folder).as_posix(), points


# Logs


class LogSteps:
    """The steps so far, rising, each with the time at which its line arrived.

    They are those of lines such as `step = 120`, or if there are none, the batches of Keras'
    progress bar: of all epochs, counted through.
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._names_steps = False
        self._epoch = 0

    def read(self, lines: Iterable[str], now_s: float) -> bool:
        """Add a point for the first line of each step; other lines may repeat the step. Return
        whether there is any point so far."""
        for step in self._steps("\n".join(lines)):
            if not self.points or step > self.points[-1].step:
                self.points.append(Point(step, now_s, None))
        return bool(self.points)

    def _steps(self, text: str) -> Iterator[int]:
        for line in re.split(r"[\r\n\b]+", ESCAPE.sub("", text)):
            step = self._read_line(line)
            if step is not None:
                yield step

    def _read_line(self, line: str) -> int | None:
        """Return the step of a line. The batches before the first named step are dropped."""
        named, epoch, batch = STEP.search(line), KERAS_EPOCH.match(line), KERAS_BATCH.match(line)
        if named:
            if not self._names_steps:
                self.points.clear()
            self._names_steps = True
            return int(named[1])
        self._epoch = int(epoch[1]) if epoch else self._epoch
        if batch and batch[2] and self._epoch and not self._names_steps:
            return (self._epoch - 1) * int(batch[2]) + int(batch[1])
        return None


STEP_LOSS, EPOCH_LOSS = "loss", "epoch_loss"  # as event files name them


def parse_losses(text: str) -> dict[str, Series]:
    """Return the losses of lines that name a step, or else the last one of each epoch, by the name
    of their scalar; {} for fewer than two."""
    steps: dict[int, float] = {}
    epochs: dict[int, float] = {}
    epoch = 0
    for line in re.split(r"[\r\n\b]+", ESCAPE.sub("", text)):
        begins, step, loss = KERAS_EPOCH.match(line), STEP.search(line), LOSS.search(line)
        epoch = int(begins[1]) if begins else epoch
        with suppress(ValueError):
            if loss and step:
                steps[int(step[1])] = float(loss[1])
            elif loss and epoch and KERAS_BATCH.match(line):
                epochs[epoch] = float(loss[1])
    name, found = (STEP_LOSS, steps) if len(steps) > 1 else (EPOCH_LOSS, epochs)
    series = tuple(Point(number, math.nan, loss) for number, loss in sorted(found.items()))
    return {name: series} if len(series) > 1 else {}
