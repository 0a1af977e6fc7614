"""How a run's tasks and hosts are, their logs, and files that are read in pieces."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..records import TaskReport
from ..trials import TrialRecord
from .message import LONG_LIST, Done, Message, Request, RunRequest, TaskRequest
from .record import field


class TaskReports(Message, tag="task_reports"):
    """One report for each task that the host has of the run."""

    tasks: List[TaskReport]


class Status(RunRequest[TaskReports], tag="status"):
    """Ask how a run's tasks are, with the last `tail` lines of each log."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST
    tail: int


class QueuedRun(Message):
    """A run that waits on a host, since `submitted` by the clock of its chief's host. The host may
    hide its `project` (then "") and for how long it has waited."""

    project: str
    run: str
    user: str
    priority: str
    submitted: int
    age_s: Optional[float]
    reason: str


class HostQueue(Message, tag="host_queue"):
    """The runs of all users that wait on a host, first come first."""

    runs: List[QueuedRun]


class ListQueue(Request[HostQueue], tag="list_queue"):
    """Ask which runs wait on a host."""

    REPEATABLE = True


class Move(TaskRequest[Done], tag="move"):
    """Give a run that waits another priority; `task` is its chief."""

    REPEATABLE = True
    priority: str


class LogFiles(Message, tag="log_files"):
    """The names of the log files in `folder`."""

    folder: str
    names: List[str]


class Logs(RunRequest[LogFiles], tag="logs"):
    """Ask which log files a host has of a run."""

    READS_RUN = True


class RecordedTrials(Message, tag="recorded_trials"):
    """The newest record of each trial that a host has."""

    trials: List[TrialRecord]


class ListTrials(RunRequest[RecordedTrials], tag="list_trials"):
    """Ask what a host has recorded of a run's trials."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST


class GpuUse(Message):
    """What one GPU does."""

    index: int
    """Its index on the host."""
    busy_percent: Optional[float]
    """How busy it is."""
    used_bytes: int
    """Its memory that is in use."""
    total_bytes: int
    """Its memory."""


class GpuUser(Message):
    """A process that computes on a GPU, or the supervisor of a task that has it."""

    user: str
    """Its user, or ""."""
    pid: int
    """Its process id; 0 if that is hidden."""
    program: str
    """The beginning of its command, or ""."""
    age_s: Optional[float]
    """The seconds since it started."""
    used_bytes: Optional[int]
    """Its share of the GPU's memory."""
    project: str
    """The project of the task, or ""."""
    run: str
    """The task's run, or ""."""
    task: str
    """The task, such as `worker:1`, or ""."""
    ends_s: Optional[float] = None
    """The seconds after which its run ends at the latest."""


class GpuState(Message):
    """One GPU, and what uses it."""

    index: int
    """Its index on the host."""
    uuid: str
    """Its UUID, or that of a MIG instance, or ""."""
    name: str
    """Its model."""
    busy_percent: Optional[float]
    """How busy it is."""
    used_bytes: int
    """Its memory that is in use."""
    total_bytes: int
    """Its memory."""
    free: bool
    """Whether nobody uses it."""
    users: List[GpuUser]
    """What uses it."""


class HostState(Message, tag="host_state"):
    """What a host has, and who uses it."""

    load: float
    """The load of the last minute."""
    cpus: int
    """Its processors."""
    used_bytes: int
    """Its memory that is in use."""
    total_bytes: int
    """Its memory."""
    free_bytes: int
    """What is free on the disk of tfdeploy's directory."""
    gpus: List[GpuState]
    """Its GPUs."""
    unseen: List[str]
    """What could not be seen, and why."""
    waiting: int
    """The runs of all users that wait in its queue."""


class LookAtHost(Request[HostState], tag="look"):
    """Look at what a host has, and who uses it, with the rights of an ordinary user."""

    REPEATABLE = True


class HostUse(Message):
    """What the whole host uses. `at` is its monotonic clock; `busy_s` are the CPU seconds of all
    processes, `received` and `sent` the bytes of all interfaces, each since the boot: subtract two
    samples. `gpus` is empty until nvidia-smi has answered."""

    at: float
    busy_s: float
    cpus: int
    used_bytes: int
    total_bytes: int
    received: int
    sent: int
    gpus: List[GpuUse]


class TaskUse(Message):
    """A task's report with its training, and what its processes use: CPU seconds since they
    started, and resident memory."""

    report: TaskReport
    cpu_s: float
    used_bytes: int


class RunEvent(Message):
    """What happens to a run on one host."""


class StateChange(RunEvent, tag="state_change"):
    """A task's state has changed."""

    state: TaskReport


class LogLines(RunEvent, tag="log_lines"):
    """Lines that a task's log gained; `cursor` is where the log continues."""

    task: str
    lines: List[str]
    cursor: str


class HostSample(RunEvent, tag="host_sample"):
    """One look at a host. `logs` are the newest lines that logs gained since the sample before;
    the newest `checkpoint` is None if the chief is on another host, or has none."""

    host: HostUse
    tasks: List[TaskUse]
    logs: List[LogLines]
    checkpoint: Optional[str] = None
    checkpoint_age_s: Optional[float] = None


class NewCheckpoint(RunEvent, tag="new_checkpoint"):
    """The chief has written another complete checkpoint."""

    checkpoint: str


class NewOutputs(RunEvent, tag="new_outputs"):
    """The chief has written other files."""

    outputs: bool


class Started(RunEvent, tag="started"):
    """All tasks of a host have their supervisors; `gpus` is how many GPUs the host has. The first
    event of a start, and of no other request. `other_folder` is the controller's folder
    from which the project's run before this one was started, "" if from the same. `sick` says what
    is wrong with GPUs that were left out. `versions` are those of frameworks that are installed for
    tasks with peers, by module."""

    gpus: int
    other_folder: str = ""
    sick: List[str] = field(default_factory=list)
    versions: Dict[str, str] = field(default_factory=dict)


class Follow(RunRequest[RunEvent], tag="follow"):
    """Report what happens to tasks until all of them have ended, or with `forever` false once.

    - States, and new checkpoints and outputs of `chief` ("": the chief is on another host).
    - With `logs`, lines: each log continues at its cursor, or begins with its last `lines` lines
      (None: all). Only lines that `grep` matches ("": all).
    - With `samples`, instead of these a sample every second or more seldom, with the newest lines
      of each log.
    """

    READS_RUN = True
    MAX_ANSWER_BYTES = 16 << 20  # a sample of a hundred tasks, all of which write long lines
    tasks: List[str]
    logs: bool
    lines: Optional[int]
    forever: bool
    cursors: Optional[Dict[str, str]] = None
    chief: str = ""
    grep: str = ""
    samples: bool = False


class Piece(Message, tag="piece"):
    """A part of a file from byte `begin` on, compressed with zlib and encoded with base64; or why
    the file is left out."""

    path: str
    mtime_ns: int = 0
    begin: int = 0
    data: str = ""
    problem: str = ""


class ReadFiles(Request[Piece], tag="read_files"):
    """Read what files have gained. Each file: its path below `folder`, and the size and SHA-256 of
    what the controller has. Files that lack more than `limit` bytes are left out, and what is no
    regular file."""

    REPEATABLE = True
    folder: str
    files: List[Tuple[str, int, str]]
    limit: int
