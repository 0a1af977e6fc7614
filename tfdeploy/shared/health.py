"""What a probe of a task's port found: the words for it."""

from __future__ import annotations

from .protocol.record import Record

READY = "READY"
NOT_LISTENING = "NOT_LISTENING"
UNREACHABLE = "UNREACHABLE"
NOT_GRPC = "NOT_GRPC"
FROZEN = "FROZEN"
PAUSED = "PAUSED"  # a process of the task is stopped by a signal, whatever its port says
WRONG_TASK = "WRONG_TASK"


class Health(Record):
    """The result of a probe: one of the words above, and a description for people."""

    verdict: str
    detail: str = ""
