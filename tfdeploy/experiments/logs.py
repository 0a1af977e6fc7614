"""Read the steps and the losses that a program prints, for runs without event files. Pure.

TensorFlow comes without TensorBoard, and Keras writes no events by default. A log has no times: the
losses are over steps, or over the epochs of Keras, and a step's time is that at which its line
arrived.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.experiments.scalars import Point
from tfdeploy.shared.log_patterns import ESCAPE, KERAS_BATCH, KERAS_EPOCH, LOSS, STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdeploy.experiments.scalars import Series


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


class LogLosses(NamedTuple):
    """The losses over `unit`: "step" or "epoch"."""

    unit: str
    series: Series

    @property
    def scalars(self) -> dict[str, Series]:
        """Return them as a scalar by its name, as event files have it; none if there are none."""
        name = "epoch_loss" if self.unit == "epoch" else "loss"
        return {name: self.series} if self.series else {}


NO_LOSSES = LogLosses("step", ())


def parse_losses(text: str) -> LogLosses:
    """Return the losses of lines that name a step, or else the last one of each epoch."""
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
    if len(steps) > 1:
        return LogLosses("step", _series(steps.items()))
    return LogLosses("epoch", _series(epochs.items())) if len(epochs) > 1 else NO_LOSSES


def _series(losses: Iterable[tuple[int, float]]) -> Series:
    return tuple(Point(number, math.nan, loss) for number, loss in sorted(losses))
