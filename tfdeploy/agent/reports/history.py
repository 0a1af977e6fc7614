"""The history of a task's states, beside its log: one line of JSON for each change.

It is for people who look at the run later; no decision depends on it. A full disk costs changes,
which the next line counts, and never the task. Only the newest MAX_BYTES are kept.
"""

from __future__ import annotations

import errno
import json
import os

from .. import TYPE_CHECKING
from ..machine import filesystem

if TYPE_CHECKING:
    from ..records import TaskState

MAX_BYTES = 1 << 17  # about a thousand changes
MAX_REASON = 500
PRIVATE = 0o600


class History:
    """The file of one task; only the task's supervisor writes it. `lost` counts the changes since
    the last line that could not be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lost = 0

    def add(self, state: TaskState) -> None:
        """Append a state. Never raises OSError: the change is counted as lost instead."""
        change = {
            "at": round(state.since, 3),
            "state": state.state,
            "exit": state.exit,
            "restarts": state.restarts,
            "reason": state.reason[:MAX_REASON],
            "cause": state.cause,
            "lost": self.lost,
        }
        try:
            self._append(json.dumps(change).encode() + b"\n")
            self.lost = 0
        except OSError:
            self.lost += 1

    def _append(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, PRIVATE)
        try:
            size = os.fstat(descriptor).st_size
            if size + len(line) > MAX_BYTES:
                content = os.pread(descriptor, size, 0)[-MAX_BYTES // 2 :]
                _, _, whole_lines = content.partition(b"\n")
                filesystem.replace_file(self.path, whole_lines + line, PRIVATE)
                return
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a line that a crash cut off
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "no space for the whole line")
        finally:
            os.close(descriptor)
