"""What a task wrote: checkpoints, event files and other outputs."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from .message import LONG_LIST, Done, Message, Request, RunRequest, TaskRequest
from .record import field


class Unit(Message):
    """A file, checkpoint or folder that a task wrote: files that are only of use together.

    `path` is relative to the task's directory, or absolute. `files` maps each file's path, of the
    same kind, to its size in bytes and its mtime in ns.
    """

    path: str
    kind: str
    files: Dict[str, Tuple[int, int]]

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())

    @property
    def mtime_ns(self) -> int:
        """The mtime of the newest file."""
        return max(mtime_ns for _, mtime_ns in self.files.values())


class HashedFile(Message):
    """A file below a folder that holds it; `sha256` is of its content, in hex."""

    path: str
    size: int
    sha256: str


class HeldUnit(Message):
    """A unit, or a complete checkpoint: then `path` is its name, and `verified` says that every
    tensor of it was read."""

    path: str
    files: List[HashedFile]
    step: Optional[int] = None
    verified: bool = False


class BadUnit(Message):
    path: str
    error: str


class Held(Message, tag="held"):
    """What is held in `folder`, and what can't be, and why. Paths of files are relative to
    `folder`: an absolute path lost its first slash. The newest checkpoint is first; they are from
    the folder `source`, which has the names `there`, a few of them (None: it does not exist)."""

    folder: str
    units: List[HeldUnit]
    bad: List[BadUnit]
    mtimes_ns: Dict[str, int] = field(default_factory=dict)
    source: str = ""
    there: Optional[List[str]] = None


class Hold(TaskRequest[Held], tag="hold"):
    """Keep these units of a task as they are, whatever it does to its files, until `EndHold` or
    until the agent exits. Without `units`: the newest good checkpoint, or `every` one."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST
    units: Optional[List[Unit]] = None
    every: bool = False


class HeldCopies(Message, tag="held_copies"):
    """One for each place."""

    copies: List[Held]


class HoldCopies(RunRequest[HeldCopies], tag="hold_copies"):
    """Hold the newest good checkpoint in each place where these tasks, or a replica, may have left
    one, also of a run that was deleted: a resume looks for what it continues from."""

    MAX_ANSWER_BYTES = LONG_LIST
    tasks: List[str]
    checkpoint_dir: str


class EndHold(Request[Done], tag="end_hold"):
    """Let the host delete and change again what is held in these folders, which `Held` named. It
    is not called a release: that is a version of code on hosts."""

    folders: List[str]


class EventFiles(Message, tag="event_files"):
    """Paths of TensorBoard's event files, relative to the folder that is their key."""

    folders: Dict[str, List[str]]


class ListEvents(TaskRequest[EventFiles], tag="events"):
    """List a task's event files."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST


class Total(Message):
    files: int
    size: int


class SpecialFile(Message):
    """What a task made that is neither a file nor a folder; `what` it is, in words. A link can be
    fetched by its name, as what it leads to."""

    path: str
    what: str
    is_link: bool = False


class SavedPath(Message):
    """A file or folder that a task wrote outside of its directory; `exists`: it is still there."""

    path: str
    exists: bool


class TaskOutputs(Message, tag="task_outputs"):
    """The newest unit first. `others` are files that the task's launch does not ask for;
    `incomplete` says why there may be more files, "" if there are none; `deleted` that the task has
    deleted its own directory. `elsewhere` is what it wrote in no folder that is fetched, newest
    first, without the oldest `elsewhere_more`."""

    folder: str
    outputs: List[Unit]
    others: Total
    incomplete: str = ""
    special: List[SpecialFile] = field(default_factory=list)
    deleted: bool = False
    elsewhere: List[SavedPath] = field(default_factory=list)
    elsewhere_more: int = 0


class ListOutputs(TaskRequest[TaskOutputs], tag="outputs"):
    """List what a task wrote."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST


class MissingPath(Message):
    """A path without a file to fetch; `beside` are a few names from the nearest folder that exists.
    `link` is the file that a link leads to; `folder`: it is a folder without files of its own;
    `what` says what else is there, such as a FIFO."""

    name: str
    beside: List[str]
    link: str = ""
    folder: bool = False
    what: str = ""


class FoundFiles(Message, tag="found_files"):
    """Each file is a unit of its own."""

    found: List[Unit]
    missing: List[MissingPath]


class FindFiles(TaskRequest[FoundFiles], tag="find"):
    """Find files and folders by paths relative to the task's directory, or absolute."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST
    names: List[str]


class ArrivalFolder(Message, tag="arrival_folder"):
    """An empty folder in which files may arrive."""

    incoming: str


class ExpectUnits(TaskRequest[ArrivalFolder], tag="expect"):
    """Make an empty folder in which files for a task may arrive."""


# Kinds of units that only ListResults reports. A delivered CHECKPOINT becomes the newest.
CHECKPOINT, EVENTS = "checkpoint", "events"


class DeliveredUnit(Message):
    """Each file: its path below the folder of arrival, and its SHA-256 in hex."""

    path: str
    kind: str
    files: List[Tuple[str, str]]


class DeliverUnits(TaskRequest[Done], tag="deliver"):
    """Install units in `folder`, which is relative to the task's directory, each whole. They have
    arrived where `ExpectUnits` said, or are held in the folder `source` of the same host. The
    files `replaced`, which are damaged, are kept in the task's folder."""

    units: List[DeliveredUnit]
    folder: str = ""
    source: str = ""
    replaced: List[str] = field(default_factory=list)


class CollectedFile(Message):
    """A file as the controller has collected it; `sha256` is "" if it has not."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


class CollectedUnit(Message):
    path: str
    kind: str
    files: List[CollectedFile]


class Damaged(Message, tag="damaged"):
    """The units that are damaged on the host, and why."""

    damaged: List[BadUnit]


class CompareUnits(TaskRequest[Damaged], tag="compare"):
    """Compare what a task that has ended wrote with what was collected of it."""

    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    units: List[CollectedUnit]


class ReplicatedOutputs(Message, tag="replicated_outputs"):
    outputs: List[Unit]


# Stands for a task in requests for these copies.
REPLICAS = "replica-outputs"


class ListReplicas(RunRequest[ReplicatedOutputs], tag="replicated"):
    """List the copies of the chief's outputs on this host."""

    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST


class ResultsAnswer(Message):
    """What `ListResults` reports."""


class TaskResults(ResultsAnswer, tag="task_results"):
    """What a task of a run has written in the run's folder; a `replica` counts as the
    chief's. `incomplete` says why there may be more, "" if all is listed. `elsewhere` is what it
    wrote outside of the run's folder and of those that are fetched. Those of a `slot` of trials are
    stored with those of all others."""

    run: str
    task: str
    is_chief: bool
    results: List[Unit]
    special: List[SpecialFile]
    incomplete: str
    replica: bool = False
    elsewhere: List[SavedPath] = field(default_factory=list)
    slot: bool = False


class ListResults(Request[ResultsAnswer], tag="results"):
    """List everything that would be lost if these runs were deleted, task by task."""

    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    project: str
    runs: List[str]
