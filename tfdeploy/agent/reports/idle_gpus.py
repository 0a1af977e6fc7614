"""For how long the GPUs of a task have been idle: `idle_gpu_stop_s` ends a run that waits for
nothing, or hangs, while others wait for its GPUs."""

from __future__ import annotations

import json
import os
import time

from ...shared import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional

LAST_BYTES = 1 << 13  # more than a line of reports/history.py has
LOOK_EVERY_S = 1.0


class IdleGpus:
    """Reads the newest line of a task's GPU history. Only what nvidia-smi has answered counts: if
    it hangs, nobody knows that the GPUs are idle, and one that reports no percentage (MIG) is never
    idle. Time is this supervisor's own, because a clock may be set."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._line = self._newest_line()  # of an earlier start
        self._since: Optional[float] = None
        self._looked_at = -LOOK_EVERY_S
        self._idle_s = 0.0

    def seconds(self) -> float:
        """Return for how long all GPUs of the task were at 0 %, until the newest line."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_EVERY_S:
            return self._idle_s
        self._looked_at, line = now, self._newest_line()
        if line and line != self._line:
            self._line = line
            self._since = (self._since or now) if _is_idle(line) else None
            self._idle_s = now - self._since if self._since else 0.0
        return self._idle_s

    def _newest_line(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
                return next(iter(file.read().splitlines()[-1:]), b"")
        except OSError:
            return b""


def _is_idle(line: bytes) -> bool:
    try:
        return all(busy == 0 for _, busy, _, _ in json.loads(line)["gpus"])
    except (ValueError, TypeError, KeyError):  # it is being written
        return False
