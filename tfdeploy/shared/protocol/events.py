"""What event files gain, as a stream."""

from __future__ import annotations

from .. import TYPE_CHECKING
from .message import Message, Request

if TYPE_CHECKING:
    from typing import List, Tuple


class EventPiece(Message):
    """Whole records of a task's event file from byte `begin` on, compressed with zlib and encoded
    with base64. `path` is relative to the task's events. At 0, the file is new, or another one."""

    task: str
    path: str
    begin: int
    data: str


class UnreadableEvents(Message):
    """An event file that cannot be read from byte `begin` on, and why."""

    task: str
    path: str
    begin: int
    error: str


class EventBatch(Message):
    """What event files gained. `complete`: nothing more is known to be missing; `last`: all tasks
    had ended before. An empty batch says that the host still looks."""

    pieces: List[EventPiece]
    unreadable: List[UnreadableEvents]
    complete: bool
    last: bool


class FollowEvents(Request[EventBatch]):
    """Send what the event files of `tasks` gain until all tasks have ended. `present` is what the
    controller has of each file: task, path, size, and the SHA-256 of its content."""

    VERB = "follow_events"
    READS_RUN = True
    MAX_ANSWER_BYTES = 48 << 20  # the longest record that is sent, and a batch, in base64
    project: str
    run: str
    tasks: List[str]
    present: List[Tuple[str, str, int, str]]
