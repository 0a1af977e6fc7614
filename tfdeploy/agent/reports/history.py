"""The history of a task's states, beside its log: one line of JSON for each change.

It is for people who look at the run later; no decision depends on it. A full disk costs changes,
which the next line counts, and never the task. Only the newest MAX_HISTORY_BYTES are kept.
"""

from __future__ import annotations

import json

from ...shared import TYPE_CHECKING
from ...shared.filesystem import append_line
from ...shared.records import MAX_HISTORY_BYTES

if TYPE_CHECKING:
    from typing import List

    from ...shared.records import TaskState

MAX_REASON = 500


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
            line = json.dumps(change).encode() + b"\n"
            append_line(self.path, line, MAX_HISTORY_BYTES, newest_half)
            self.lost = 0
        except OSError:
            self.lost += 1


def newest_half(lines: List[bytes]) -> List[bytes]:
    """Return the newest lines, together at most half of the bytes. Pure."""
    left, kept = sum(map(len, lines)) // 2, len(lines)
    while kept and len(lines[kept - 1]) <= left:
        kept -= 1
        left -= len(lines[kept])
    return lines[kept:]
