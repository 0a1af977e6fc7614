"""How far a training was at which time: its rate, its time left and its losses. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.agent.records import LogProgress, TaskReport

RATE_WINDOW_S = 60.0
MIN_WINDOW_S = 3.0  # in less, the time that a report travels would distort the rate
MAX_POINTS = 200
MAX_LOSSES = 1000


@dataclass(frozen=True)
class Position:
    """How far a training is, in `unit` ("step" or "epoch"), and where it ends (None: unknown)."""

    unit: str
    reached: float
    end: float | None = None


def position_of(report: TaskReport) -> Position | None:
    """Return how far a task says that the training is; None if it does not say.

    Keras prints its totals, so they come before the steps of event files, which come late. A batch
    of Keras is a step.
    """
    said = report.log_progress
    if said and said.epoch is not None and said.epochs:
        return _keras_position(said, said.epoch, said.epochs)
    if report.step is not None:
        return Position("step", report.step)
    if said and said.step is not None:
        return Position("step", said.step)
    if said and said.batch is not None:
        return Position("step", said.batch, said.batches)
    return None


def _keras_position(said: LogProgress, epoch: int, epochs: int) -> Position:
    if said.batches:
        return Position(
            "step", (epoch - 1) * said.batches + (said.batch or 0), epochs * said.batches
        )
    return Position("epoch", epoch - 1, epochs)


class TrainingHistory:
    """What one task reported about the training, each time that it moved. Times are seconds of any
    clock, the same for all calls."""

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=MAX_LOSSES)
        self.position: Position | None = None
        self._points: deque[tuple[float, float]] = deque(maxlen=MAX_POINTS)

    def add(self, report: TaskReport, now: float) -> None:
        """Add a report. A training that is further back, after a restart, starts a new history of
        its rate."""
        position = position_of(report)
        if position is None or position == self.position:
            return
        before, self.position = self.position, position
        if before and (before.unit, before.end) == (position.unit, position.end):
            if position.reached < before.reached:
                self._points.clear()
        else:
            self._points.clear()
        self._points.append((now - _age_s(report), position.reached))
        self._add_loss(report)

    def rate(self) -> float | None:
        """Return the steps, or epochs, per second of the last minute, or between the last two
        moves; None if it is not known yet."""
        if len(self._points) < 2:
            return None
        newest_at, newest = self._points[-1]
        recent = [point for point in self._points if newest_at - point[0] <= RATE_WINDOW_S]
        at, reached = recent[0] if len(recent) > 1 else self._points[-2]
        elapsed_s = newest_at - at
        return (newest - reached) / elapsed_s if elapsed_s >= MIN_WINDOW_S else None

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the end; None if the end or the rate is unknown."""
        rate, position = self.rate(), self.position
        if not rate or position is None or position.end is None:
            return None
        since_s = now - self._points[-1][0]
        return max(0.0, (position.end - position.reached) / rate - since_s)

    def _add_loss(self, report: TaskReport) -> None:
        try:
            loss = float(report.log_progress.loss) if report.log_progress else math.nan
        except ValueError:  # "", or a host sends anything else
            return
        if math.isfinite(loss):
            self.losses.append(loss)


def _age_s(report: TaskReport) -> float:
    """Return how long ago the task wrote what it reported."""
    age_s = report.quiet_s if report.log_progress and report.step is None else report.step_age_s
    return age_s or 0.0
