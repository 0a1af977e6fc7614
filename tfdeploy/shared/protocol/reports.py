"""How a run's tasks are, their logs, and files that are read in pieces."""

from __future__ import annotations

from .. import TYPE_CHECKING
from ..records import TaskReport
from .message import LONG_LIST, Message, Request

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple


class TaskReports(Message):
    """One report for each task that the host has of the run."""

    tasks: List[TaskReport]


class Status(Request[TaskReports]):
    """Ask how a run's tasks are, with the last `tail` lines of each log."""

    VERB = "status"
    READS_RUN = True
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    project: str
    run: str
    tail: int


class LogFiles(Message):
    """The names of the log files in `folder`."""

    folder: str
    names: List[str]


class Logs(Request[LogFiles]):
    """Ask which log files a host has of a run."""

    VERB = "logs"
    READS_RUN = True
    REPEATABLE = True
    project: str
    run: str


class Connection(Message):
    """What one TCP socket of a task has received and sent since it was opened, in bytes. No two
    sockets of a host have the same `inode` at the same time."""

    task: str
    inode: int
    received: int
    sent: int


class Load(Message):
    """What a run uses, since some fixed moment: ask twice and subtract. `at` is this host's
    monotonic clock; `cpu_s` the CPU seconds of each live task; `busy_s` those of the whole host;
    `connections` those that the tasks have now, None if the kernel does not report them."""

    at: float
    cpu_s: Dict[str, float]
    busy_s: float
    connections: Optional[List[Connection]] = None


class MeasureLoad(Request[Load]):
    """Measure what a run uses on a host."""

    VERB = "load"
    REPEATABLE = True
    project: str
    run: str


class RunEvent(Message):
    """What happens to a run on one host."""


class StateChange(RunEvent):
    """A task's state has changed."""

    state: TaskReport


class LogLines(RunEvent):
    """Lines that a task's log gained; `cursor` is where the log continues."""

    task: str
    lines: List[str]
    cursor: str


class NewCheckpoint(RunEvent):
    """The chief has written another complete checkpoint."""

    checkpoint: str


class NewOutputs(RunEvent):
    """The chief has written other files."""

    outputs: bool


class Started(RunEvent):
    """All tasks of a host have their supervisors; `gpus` is how many GPUs the host has. The first
    event of a start, and of no other request. `other_folder` is the controller's folder
    from which the project's run before this one was started, "" if from the same."""

    gpus: int
    other_folder: str = ""


class Follow(Request[RunEvent]):
    """Report what happens to tasks until all of them have ended, or with `forever` false once.

    Log lines only with `logs`: each log continues at its cursor, or begins with its last `lines`
    lines (None: all). With `chief`, its checkpoints and outputs are reported too.
    """

    VERB = "follow"
    READS_RUN = True
    REPEATABLE = True
    project: str
    run: str
    tasks: List[str]
    logs: bool
    lines: Optional[int]
    forever: bool
    cursors: Optional[Dict[str, str]] = None
    chief: str = ""


class SelectLines(Request[RunEvent]):
    """Report as Follow does, with only those log lines that `grep` matches ("": all) and that were
    written in the last `since_s` seconds, or since the time `since_at` (seconds since 1970), and of
    these the last `lines` of each log."""

    VERB = "select"
    READS_RUN = True
    project: str
    run: str
    tasks: List[str]
    lines: Optional[int]
    forever: bool
    grep: str
    since_s: Optional[float]
    since_at: Optional[float] = None
    cursors: Optional[Dict[str, str]] = None


class Piece(Message):
    """A part of a file from byte `begin` on, compressed with zlib and encoded with base64."""

    path: str
    mtime_ns: int
    begin: int
    data: str


class ReadFiles(Request[Piece]):
    """Read what files have gained. Each file: its path below `folder`, and the size and SHA-256 of
    what the controller has. Files that lack more than `limit` bytes are left out."""

    VERB = "give"
    REPEATABLE = True
    folder: str
    files: List[Tuple[str, int, str]]
    limit: int
