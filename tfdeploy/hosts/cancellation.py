"""The `cancel` of a program that calls tfdeploy: where it is looked at, and where it waits."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.errors import Cancelled

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator


class Cancellation:
    """Whether the program has set `cancel` (None: it cannot). A cleanup does not look at it."""

    def __init__(self, cancel: threading.Event | None) -> None:
        self.event = cancel
        self._cleanups = 0

    def check(self) -> None:
        """Raise Cancelled if the program has cancelled."""
        if self.event is not None and self.event.is_set() and not self._cleanups:
            raise Cancelled("cancelled by the calling program")

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Let `check` raise nothing until the context ends. For the program's own thread."""
        self._cleanups += 1
        try:
            yield
        finally:
            self._cleanups -= 1
