"""Bursts of events: the first few are reported one by one, the rest in groups."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


@dataclass(frozen=True)
class BatchTimes:
    """How long events wait, in seconds."""

    group_s: float = 1.0  # events that arrive within this time are reported together
    quiet_s: float = 5.0  # after this time without an event, the next is reported alone again


TIMES = BatchTimes()


class Batch(Generic[T]):
    """Call `report` with every event that is added: with one at a time for the first `single` of a
    burst, then with several. Any thread may add events.

    A thread of its own reports the events that wait.

    Call `flush` before printing anything else, so that events appear in the order they happened.
    """

    def __init__(
        self, report: Callable[[Sequence[T]], None], single: int, times: BatchTimes = TIMES
    ) -> None:
        self._report = report
        self._times = times
        self._single = single
        self._burst = 0  # events in the current burst
        self._last_event = time.monotonic()
        self._waiting: list[T] = []
        self._lock = threading.RLock()  # `report` may call `flush`

    def add(self, event: T) -> None:
        with self._lock:
            now, previous = time.monotonic(), self._last_event
            self._last_event = now
            self._burst = 1 if now - previous > self._times.quiet_s else self._burst + 1
            if self._burst <= self._single:
                self.flush()
                self._report([event])
                return
            self._waiting.append(event)
            if len(self._waiting) == 1:
                timer = threading.Timer(self._times.group_s, self.flush)
                timer.daemon = True
                timer.start()

    def flush(self) -> None:
        """Report the events that wait."""
        with self._lock:
            events, self._waiting = self._waiting, []
            if events:
                self._report(events)
