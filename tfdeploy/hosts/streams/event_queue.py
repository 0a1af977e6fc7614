"""Events of many hosts on their way to the one thread that handles them, limited by their size."""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Generic, TypeVar

E = TypeVar("E")

# What may wait, in bytes as they were received; as objects, short lines take ten times as much.
MAX_WAITING_BYTES = 8 << 20
EVENT_BYTES = 32 << 10  # each event counts for more than this: 256 of the smallest may wait


class EventQueue(Generic[E]):
    """Events in the order in which they came. While MAX_WAITING_BYTES wait, hosts have to wait,
    too: nobody reads what they send, until events are handled."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._events: deque[tuple[E, int]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, event: E, size: int) -> None:
        """Add an event of `size` bytes as soon as there is room; drop it if the queue is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self.waiting_bytes < MAX_WAITING_BYTES
            )
            if not self._is_closed:
                self._events.append((event, size + EVENT_BYTES))
                self.waiting_bytes += size + EVENT_BYTES
                self._changed.notify_all()

    def get(self, limit_s: float | None) -> E:
        """Remove the first event. Raises queue.Empty if none comes within `limit_s`, or if the
        queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._events, limit_s)
            if self._is_closed or not self._events:
                raise queue.Empty
            event, size = self._events.popleft()
            self.waiting_bytes -= size
            self._changed.notify_all()
            return event

    def close(self) -> None:
        """Wake all threads that wait, from any thread; there are no more events."""
        with self._changed:
            self._is_closed = True
            self._events.clear()
            self._changed.notify_all()
