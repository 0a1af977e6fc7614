"""What a task wrote: checkpoints, event files and other outputs."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from .message import LONG_LIST, Done, Message, Request, RunRequest, TaskRequest
from .record import field


class HashedFile(Message):
    """A file below a folder that holds it; `sha256` is of its content, in hex."""

    path: str
    size: int
    sha256: str


class UnreadableCheckpoint(Message):
    name: str
    error: str


class HeldCheckpoint(Message):
    """A complete set; `verified` says that every tensor of it was read."""

    name: str
    step: Optional[int]
    verified: bool
    files: List[HashedFile]


class HeldCopy(HeldCheckpoint):
    """A complete set that is held in `folder`."""

    folder: str


class PinAnswer(Message):
    """What `Pin` reports, in this order."""


class Linked(PinAnswer):
    """The checkpoints that are held in the folder `linked`, the newest first, before they are read:
    without hashes. They can be fetched from now on; `Pinned` says whether they are good."""

    linked: str
    checkpoints: List[HeldCheckpoint]


class Pinned(PinAnswer):
    """The newest checkpoint first; paths are relative to the folder `pin`. `there` are a few names
    from `checkpoint_dir`, None if it does not exist. `mtimes_ns`, the mtime of each file, is None
    from an agent that does not report them."""

    checkpoint_dir: str
    pin: str
    checkpoints: List[HeldCheckpoint]
    bad: List[UnreadableCheckpoint]
    there: Optional[List[str]] = None
    mtimes_ns: Optional[Dict[str, int]] = None


class Pin(TaskRequest[PinAnswer]):
    """Hold the newest good checkpoint of a task (or `every` one) until `Unpin`, or until the agent
    exits."""

    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST
    every: bool


class Unpin(TaskRequest[Done]):
    """Release what `Pin` holds."""


class CheckpointCopies(Message):
    """`bad` are complete checkpoints that could not be read to their end."""

    copies: List[HeldCopy]
    bad: List[UnreadableCheckpoint] = field(default_factory=list)


class FindNewest(RunRequest[CheckpointCopies]):
    """Find the newest good checkpoint in each place where these tasks, or a replica, may have left
    one, and hold it until `LetGoOfCopies`."""

    VERB = "newest"
    MAX_ANSWER_BYTES = LONG_LIST
    tasks: List[str]
    checkpoint_dir: str


class LetGoOfCopies(RunRequest[Done]):
    """Delete what `FindNewest` holds."""

    VERB = "unhold"
    tasks: List[str]
    checkpoint_dir: str


class EventFiles(Message):
    """Paths of TensorBoard's event files, relative to the folder that is their key."""

    folders: Dict[str, List[str]]


class ListEvents(TaskRequest[EventFiles]):
    """List a task's event files."""

    VERB = "events"
    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST


class OutputUnit(Message):
    """Files that are only of use together. Each file: path, size in bytes, mtime in ns. Paths are
    relative to the task's directory, or absolute."""

    path: str
    kind: str
    size: int
    mtime_ns: int
    files: List[Tuple[str, int, int]]


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


class TaskOutputs(Message):
    """The newest unit first. `others` are files that the task's launch does not ask for;
    `incomplete` says why there may be more files, "" if there are none; `deleted` that the task has
    deleted its own directory. `elsewhere` is what it wrote in no folder that is fetched, newest
    first, without the oldest `elsewhere_more`. None from an older agent: `special`, `elsewhere`."""

    folder: str
    outputs: List[OutputUnit]
    others: Total
    incomplete: str = ""
    special: Optional[List[SpecialFile]] = None
    deleted: bool = False
    elsewhere: Optional[List[SavedPath]] = None
    elsewhere_more: int = 0


class ListOutputs(TaskRequest[TaskOutputs]):
    """List what a task wrote."""

    VERB = "outputs"
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


class FoundFiles(Message):
    """Each file is a unit of its own."""

    found: List[OutputUnit]
    missing: List[MissingPath]


class FindFiles(TaskRequest[FoundFiles]):
    """Find files and folders by paths relative to the task's directory, or absolute."""

    VERB = "find"
    READS_RUN = True
    MAX_ANSWER_BYTES = LONG_LIST
    names: List[str]


class UnitToHold(Message):
    path: str
    kind: str
    files: List[str]


class HeldUnit(Message):
    path: str
    files: List[HashedFile]


class BadUnit(Message):
    path: str
    error: str


class HeldUnits(Message):
    """Paths in `held` are relative to the folder `pin`: an absolute path lost its first slash."""

    pin: str
    held: List[HeldUnit]
    bad: List[BadUnit]


HELD_OUTPUTS = "held/outputs"  # where HoldUnits holds them, in the task's folder


class HoldUnits(TaskRequest[HeldUnits]):
    """Copy or link units, so that they do not change while they are verified and fetched."""

    VERB = "hold"
    MAX_ANSWER_BYTES = LONG_LIST
    units: List[UnitToHold]


class LetGo(TaskRequest[Done]):
    """Delete what `HoldUnits` made."""


class ArrivalFolder(Message):
    """An empty folder in which files may arrive."""

    incoming: str


class ExpectUnits(TaskRequest[ArrivalFolder]):
    """Make an empty folder in which files for a task may arrive."""

    VERB = "expect"


# Kinds of units that only ListResults reports. A delivered CHECKPOINT becomes the newest.
CHECKPOINT, EVENTS = "checkpoint", "events"


class DeliveredUnit(Message):
    """Each file: its path below the folder of arrival, and its SHA-256 in hex."""

    path: str
    kind: str
    files: List[Tuple[str, str]]


class DeliverUnits(TaskRequest[Done]):
    """Install units in `folder`, which is relative to the task's directory, each whole. They have
    arrived where `ExpectUnits` said, or are held in the folder `source` of the same host. The
    files `replaced`, which are damaged, are kept in the task's folder."""

    VERB = "deliver"
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


class Damaged(Message):
    """The units that are damaged on the host, and why."""

    damaged: List[BadUnit]


class CompareUnits(TaskRequest[Damaged]):
    """Compare what a task that has ended wrote with what was collected of it."""

    VERB = "compare"
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    units: List[CollectedUnit]


class ReplicatedOutputs(Message):
    outputs: List[OutputUnit]


# Stands for a task in requests for these copies.
REPLICAS = "replica-outputs"


class ListReplicas(RunRequest[ReplicatedOutputs]):
    """List the copies of the chief's outputs on this host."""

    VERB = "replicated"
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST


class ResultsAnswer(Message):
    """What `ListResults` reports."""


class TaskResults(ResultsAnswer):
    """What a task of a run has written in the run's folder; a `replica` counts as the
    chief's. `incomplete` says why there may be more, "" if all is listed. `elsewhere` is what it
    wrote outside of the run's folder and of those that are fetched, None from an older agent. Those
    of a `slot` of trials are stored with those of all others."""

    run: str
    task: str
    is_chief: bool
    results: List[OutputUnit]
    special: List[SpecialFile]
    incomplete: str
    replica: bool = False
    elsewhere: Optional[List[SavedPath]] = None
    slot: bool = False


class ListResults(Request[ResultsAnswer]):
    """List everything that would be lost if these runs were deleted, task by task."""

    VERB = "results"
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    project: str
    runs: List[str]
