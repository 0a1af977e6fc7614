"""Runs on a host: start, stop, find and delete them, and hand their checkpoints to a new chief."""

from __future__ import annotations

import hashlib
from typing import Dict, List, Optional

from ..records import Launch, TaskState
from .message import LONG_LIST, Done, Message, Request, RunRequest, TaskRequest
from .record import field
from .reports import RunEvent


class RunRecord(Message):
    """The controller's record of a run: how often it was started, the texts of its run.json and
    hosts.toml, and the name of its last launch."""

    starts: int
    run: str
    hosts: str
    launched: str = ""


class Start(Request[RunEvent], tag="start"):
    """Start all of these tasks, or none; then report what happens to them, as Follow does without
    logs. A second arrival of the same request, known by its record, starts nothing more: it is
    answered as the first one."""

    REPEATABLE = True
    launches: List[Launch]
    record: Optional[RunRecord] = None


class TaskEntrance(Message, tag="task_entrance"):
    """How to run a command as a task: the words of a command line, to which one word is added, and
    the directory in which it runs."""

    words: List[str]
    directory: str


class Enter(TaskRequest[TaskEntrance], tag="enter"):
    """Ask how to run a command in a task's directory with its environment."""

    READS_RUN = True


class SavedCheckpoint(Message):
    """The newest checkpoint of a chief that was still training."""

    name: str
    """Its name."""
    age_s: float
    """The seconds since it was saved."""


class StoppedTask(Message):
    """`survivors` are processes that could not be ended. `left` says that the supervisor has
    exited, too."""

    task: str
    state: str
    survivors: List[int]
    saved: Optional[SavedCheckpoint] = None
    left: bool = False


class Stopped(Message, tag="stopped"):
    tasks: List[StoppedTask]


class Stop(RunRequest[Stopped], tag="stop"):
    """End tasks and verify that their processes are gone. With `launched`, only those of that
    launch; with `others`, also all other tasks of the run that run on the host, which a newer or
    an older plan has. With `informs`, the chief's supervisor stays to inform the others that the
    run ends; with `silent` it then notifies nobody. It exits when all others have reported their
    ends: the answer waits up to `linger_s` seconds for that."""

    REPEATABLE = True
    tasks: List[str]
    launched: str = ""
    informs: bool = False
    silent: bool = False
    linger_s: float = 0.0
    others: bool = False


class ChangeRun(RunRequest[Done], tag="change_run"):
    """Keep other controllers from changing a run until the next request; `by` says who it is."""

    by: str


class KnownRun(Message):
    """A run that has a record on the host; equal records have equal digests. `live`: one of its
    supervisors runs here, or is about to."""

    id: str
    starts: int
    digest: str
    live: bool = False


class KnownRuns(Message, tag="known_runs"):
    """`unreadable` are runs whose record can't be read."""

    runs: List[KnownRun]
    unreadable: List[str] = field(default_factory=list)


class ListRecords(Request[KnownRuns], tag="recorded"):
    """List the newest runs that have a record on the host."""

    REPEATABLE = True
    project: str


class RecordTexts(Message, tag="record_texts"):
    """The texts of a run's run.json and hosts.toml."""

    run: str
    hosts: str

    @property
    def digest(self) -> str:
        """A hash that is equal for equal records."""
        return hashlib.sha256("{}\0{}".format(self.run, self.hosts).encode()).hexdigest()


class ReadRecord(RunRequest[RecordTexts], tag="record"):
    """Read a run's record."""

    REPEATABLE = True


class ForgetRecord(RunRequest[Done], tag="forget_record"):
    """Delete the record of a run that did not start: the launch `launched`."""

    REPEATABLE = True
    launched: str


class HeldRun(Message):
    """A run's part on this host. `chief` is the run's, on whatever host; `live`: one of its
    supervisors runs here, or is about to; `tasks` maps each task of the last launch on this host to
    its last state, `launch` names that launch, and `age_s` is the time since then; `data` are the
    releases of data sets that its tasks use, `environments` their Python environments.
    `needed` are the tasks that the chief can't run without.
    """

    run: str
    release: str
    chief: str
    live: bool
    tasks: Dict[str, TaskState]
    age_s: float
    bytes: int
    data: List[str]
    environments: List[str]
    launch: str = ""
    needed: List[str] = field(default_factory=list)


class HeldRelease(Message):
    """A release on a host."""

    release: str
    """Its id."""
    age_s: float
    """The seconds since it was pushed."""
    bytes: int
    """Its size."""


class HeldEnvironment(Message):
    """A Python environment on a host."""

    KEYS = ("environment", "age_s", "bytes")

    environment: str
    """Its id."""
    age_s: float
    """The seconds since it was built."""
    bytes: int
    """Its size."""
    wheels: str = ""
    """The release that it was built from; "" if an index had its packages."""


class DiskUse(Message, tag="disk_use"):
    """`left_bytes` is what broken deletions left of runs, `store_left_bytes` what they, pushes and
    builds left of all that hosts can share; `free_bytes` what this user may still write."""

    runs: List[HeldRun]
    releases: List[HeldRelease]
    left_bytes: int
    store_left_bytes: int
    free_bytes: int
    total_bytes: int
    environments: List[HeldEnvironment]


class MeasureDisk(Request[DiskUse], tag="disk"):
    """Measure what a project stores on a host."""

    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    project: str


class Kept(Message):
    """A run, release or environment that was not deleted."""

    name: str
    why: str


class Removed(Message, tag="removed"):
    removed_bytes: int
    kept: List[Kept]


class Remove(Request[Removed], tag="remove"):
    """Delete runs, releases and environments, unless they are in use. `by` says who deletes them,
    in words for users. `launches` has the last launch of runs when their files were listed: a run
    that was started again since then stays."""

    project: str
    runs: List[str]
    releases: List[str]
    environments: List[str]
    by: str = ""
    launches: Optional[Dict[str, str]] = None
