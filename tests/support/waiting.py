"""Wait for a condition as long as there is progress, even on a slow machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# With 8 busy processes on 2 cores, an import of TensorFlow printed nothing for 40 s.
STILL_S = 120.0


def until(
    holds: Callable[[], Any],
    what: str,
    moves: Callable[[], Any] | None = None,
    *,
    still_s: float = STILL_S,
    every_s: float = 0.02,
) -> Any:
    """Poll until `holds()` is true and return what it returned.

    A condition that takes long, such as a command, is polled for at most a third of the time.
    `moves()` returns a value that changes as long as there is progress: what has been written so
    far, for example. It is called every `still_s` seconds, since it can take long itself. Fail when
    it is the same as before, or after `still_s` seconds without it.
    """
    before, deadline = [], time.monotonic() + still_s
    asked_at = time.monotonic()
    while not (found := holds()):
        took_s = time.monotonic() - asked_at
        if time.monotonic() >= deadline:
            now = [moves()] if moves else []
            assert now != before, f"no progress for {still_s:.0f} s while waiting for {what}"
            before, deadline = now, time.monotonic() + still_s
        time.sleep(max(every_s, 2 * took_s))
        asked_at = time.monotonic()
    return found
