"""How far a training was at which time: its rate, its time left, its losses, and whether it stalls.
Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tfdeploy.errors import HostError
from tfdeploy.shared import pace
from tfdeploy.shared.records import READY, RUNNING, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.planning.plan import Placement
    from tfdeploy.shared.records import LogProgress, TaskReport

RATE_WINDOW_S = 60.0
MIN_WINDOW_S = 3.0  # in less, the time that a report travels would distort the rate
LATE_S = 10.0  # after this time, and three times the usual one, a move is late
LATE_MOVES = 3.0
# A task whose last step is older is called stalled. Scripts write events far more often.
STALLED_S = 120.0
PORTLESS = "-"
MAX_POINTS = 200
MAX_LOSSES = 1000


@dataclass(frozen=True)
class Position:
    """How far the training is."""

    unit: Literal["step", "epoch"]
    """What is counted."""
    reached: float
    """The number that it has reached."""
    end: float | None = None
    """The number at which it ends."""


def position_of(report: TaskReport) -> Position | None:
    """Return how far a task says that the training is; None if it does not say.

    Keras prints its totals, so they come before the steps of event files, which come late. A batch
    of Keras is a step. What a program counts within epochs without a total may be examples, so it
    is only a part of the epoch.
    """
    said = report.log_progress
    if said and said.epoch is not None and said.epochs:
        return _keras_position(said, said.epoch, said.epochs)
    if report.step is not None:
        return Position("step", report.step)
    if said and said.step is not None:
        return Position("step", said.step)
    if said and said.epoch is not None and said.epochs is None:
        part = (said.batch or 0) / said.batches if said.batches else 0
        return Position("epoch", said.epoch + part)
    if said and said.batch is not None:
        return Position("step", said.batch, said.batches)
    return None


def _keras_position(said: LogProgress, epoch: int, epochs: int) -> Position:
    if said.batches:
        return Position(
            "step", (epoch - 1) * said.batches + (said.batch or 0), epochs * said.batches
        )
    return Position("epoch", epoch - 1, epochs)


def progress_age_s(report: TaskReport) -> float:
    """Return how long ago the task wrote what `position_of` reads."""
    said = report.log_progress
    is_of_log = said and (report.step is None or (said.epoch is not None and said.epochs))
    return (report.quiet_s if is_of_log else report.step_age_s) or 0.0


def is_healthy(report: TaskReport) -> bool:
    """Return whether the task succeeded, or is READY, answers on its port (if it has one), and is
    not known to be stalled."""
    answers = report.health in (READY, PORTLESS)
    return report.state == SUCCEEDED or (
        report.state == READY and answers and not is_stalled(report)
    )


def is_stalled(report: TaskReport) -> bool:
    """Return whether the task trains, and for STALLED_S has neither reported a step or a batch, nor
    printed anything, nor, as after a resume, changed its state. What it prints while TensorFlow
    waits for other tasks does not count."""
    trains = report.state in (READY, RUNNING) and report.step is not None
    signs = [progress_age_s(report), report.age_s]
    said = report.log_progress
    if report.quiet_s is not None and not (said and said.waits_for):
        signs.append(report.quiet_s)
    return trains and min(signs) > STALLED_S


class TrainingHistory:
    """What one task reported about the training, each time that it moved. Times are seconds of any
    clock, the same for all calls."""

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=MAX_LOSSES)
        self.position: Position | None = None
        self._points: deque[tuple[float, float]] = deque(maxlen=MAX_POINTS)

    def add(self, report: TaskReport, now: float) -> None:
        """Add a report. A training that is further back, after a restart, starts a new history of
        its rate, and so does what was reached before the task's state started: the time in which it
        was stopped is no training time."""
        position = position_of(report)
        if position is None or position == self.position:
            return
        before, self.position = self.position, position
        age_s = progress_age_s(report)
        is_same_kind = before and (before.unit, before.end) == (position.unit, position.end)
        if not (before and is_same_kind and position.reached > before.reached):
            self._points.clear()
        if age_s <= report.age_s:
            self._points.append((now - age_s, position.reached))
        self._add_loss(report)

    def rate(self, now: float) -> float | None:
        """Return the steps, or epochs, per second of the last minute, or between the last two
        moves; None if it is not known yet. It falls from the moment at which the next move should
        have come."""
        if len(self._points) < 2:
            return None
        return self._rate_until(max(self._points[-1][0], now - self._longest_gap_s()))

    def late_s(self, now: float) -> float | None:
        """Return the seconds since the last move; None if the next one is not late yet."""
        if len(self._points) < 2:
            return None
        silent_s = now - self._points[-1][0]
        is_late = silent_s > max(LATE_S, LATE_MOVES * self._longest_gap_s())
        return silent_s if is_late else None

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the end; None if the end or the rate is unknown, or the next
        move is late."""
        position = self.position
        if len(self._points) < 2 or not position or position.end is None or self.late_s(now):
            return None
        newest_at = self._points[-1][0]
        rate, since_s = self._rate_until(newest_at), now - newest_at
        if not rate:
            return None
        return max(0.0, (position.end - position.reached) / rate - since_s)

    def _rate_until(self, end: float) -> float | None:
        newest = self._points[-1][1]
        recent = [point for point in self._points if end - point[0] <= RATE_WINDOW_S]
        at, reached = recent[0] if len(recent) > 1 else self._points[-2]
        elapsed_s = end - at
        return (newest - reached) / elapsed_s if elapsed_s >= MIN_WINDOW_S else None

    def _longest_gap_s(self) -> float:
        """Return the longest time between two of the moves within RATE_WINDOW_S, or between the
        last two."""
        newest_at = self._points[-1][0]
        times = [at for at, _ in self._points if newest_at - at <= RATE_WINDOW_S]
        times = times if len(times) > 1 else [at for at, _ in self._points][-2:]
        return max(later - earlier for earlier, later in pairwise(times))

    def _add_loss(self, report: TaskReport) -> None:
        try:
            loss = float(report.log_progress.loss) if report.log_progress else math.nan
        except ValueError:  # "", or a host sends anything else
            return
        if math.isfinite(loss):
            self.losses.append(loss)


def slow_tasks(reports: Iterable[tuple[Placement, TaskReport | None]]) -> list[HostError]:
    """Return what is slower than the rest of the run, in sentences with figures."""
    tasks = [
        pace.TaskPace(str(placement.task), placement.host, report.pace)
        for placement, report in reports
        if report and report.state in (READY, RUNNING) and report.pace
    ]
    return [HostError(host, words) for host, words in pace.slow_tasks(tasks)]
