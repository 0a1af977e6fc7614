"""Read the losses that a program printed, for runs without event files. Pure.

TensorFlow comes without TensorBoard, and Keras writes no events by default. A log has no times, so
the losses are over steps, or over the epochs of Keras.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.experiments.scalars import Point
from tfdeploy.shared.log_patterns import BATCH, EPOCH, ESCAPE, LOSS, STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.experiments.scalars import Series


class LogLosses(NamedTuple):
    """The losses over `unit`: "step" or "epoch"."""

    unit: str
    series: Series


NO_LOSSES = LogLosses("step", ())


def parse(text: str) -> LogLosses:
    """Return the losses of lines that name a step, or else the last one of each epoch."""
    steps: dict[int, float] = {}
    epochs: dict[int, float] = {}
    epoch = 0
    for line in re.split(r"[\r\n\b]+", ESCAPE.sub("", text)):
        begins, step, loss = EPOCH.match(line), STEP.search(line), LOSS.search(line)
        epoch = int(begins[1]) if begins else epoch
        with suppress(ValueError):
            if loss and step:
                steps[int(step[1])] = float(loss[1])
            elif loss and epoch and BATCH.match(line):
                epochs[epoch] = float(loss[1])
    if len(steps) > 1:
        return LogLosses("step", _series(steps.items()))
    return LogLosses("epoch", _series(epochs.items())) if len(epochs) > 1 else NO_LOSSES


def _series(losses: Iterable[tuple[int, float]]) -> Series:
    return tuple(Point(number, math.nan, loss) for number, loss in sorted(losses))
