"""Of many things that happen at the same time the first are told one by one, the rest together."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
TOGETHER_S = 1.0  # what comes within this time is told together
QUIET_S = 5.0  # after so long without anything the next ones are told one by one again


class Flood(Generic[T]):
    """Calls `tell` with what is added: `singly` times with a single thing, then with many.

    Whoever tells something else calls `flush` first, so that nothing is told behind its time.
    """

    def __init__(self, tell: Callable[[Sequence[T]], None], singly: int) -> None:
        self._tell = tell
        self._singly = singly
        self._told = 0
        self._last = time.monotonic()
        self._kept: list[T] = []
        self._lock = threading.RLock()  # who is told may flush

    def add(self, one: T) -> None:
        with self._lock:
            now, before = time.monotonic(), self._last
            self._last = now
            self._told = 1 if now - before > QUIET_S else self._told + 1
            if self._told <= self._singly:
                self.flush()
                self._tell([one])
                return
            self._kept.append(one)
            if len(self._kept) == 1:
                later = threading.Timer(TOGETHER_S, self.flush)
                later.daemon = True
                later.start()

    def flush(self) -> None:
        """Tell now what waits to be told."""
        with self._lock:
            kept, self._kept = self._kept, []
            if kept:
                self._tell(kept)
