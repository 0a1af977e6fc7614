"""What the supervisors of a run say to each other in the heartbeat.

A new field stands here, once: reports are stored as they were received.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ....shared.protocol.message import Message
from ....shared.protocol.record import Fields, Record, field, field_names, to_json
from ....shared.records import Pace, TaskState
from ....shared.trials import TrialOrder, TrialRecord
from ...machine.peers import as_source

# What tasks in the queue do: wait for their turn, let others pass, start.
WAIT, ASIDE, GO = "wait", "aside", "go"
MAX_TEXT = 10_000
MAX_SOURCES = 16  # of one task: its host has few networks


class Report(Record):
    """What a task says of itself.

    `sent_ns` is the sender's own monotonic clock in ns: of two reports of a task, the later one
    counts. `sources` are the addresses from which the sender's host connects to others, with the
    ports if only these are its user's. `stops_run` says that the command that stops the whole run
    has ended the task, `silent` that nobody is notified of that end. `lost_round` is the newest of
    rounds.py that the task's loss has started. `holds`: it waits in the queue, and has taken its
    GPUs and ports. `idle_s` is for how long its GPUs have been idle, None if it has none. `at` is
    when the chief's supervisor received the report, on its own monotonic clock.
    """

    sent_ns: int = 0
    state: str = ""
    reason: str = ""
    cause: str = ""
    restarts: int = 0
    lost_round: int = 0
    stops_run: bool = False
    silent: bool = False
    sources: List[str] = field(default_factory=list)
    holds: bool = False
    pace: Optional[Pace] = None
    idle_s: Optional[float] = None
    at: float = 0.0

    def task_state(self) -> TaskState:
        """Return the state of the task, as far as it was reported."""
        return TaskState(
            self.state, since=0.0, restarts=self.restarts, reason=self.reason, cause=self.cause
        )


class Question(Report):
    """What a task sends to the chief's supervisor: a report of its state, questions, or both.

    Only a report has a `state`. `known_lists` is the digest of the lists of the last answer; None
    asks for no list. `advance` asks for the count of run_progress.py, `backup` for the offer of
    backups.py, `file` and `offset` for a piece of an offered file. `trial` is the sender's own, and
    `trials` what its host has recorded.
    """

    known_lists: Optional[str] = ""
    advance: bool = False
    backup: bool = False
    file: str = ""
    offset: int = 0
    trial: Optional[TrialRecord] = None
    trials: List[TrialRecord] = field(default_factory=list)

    def report(self, **changes: Any) -> Report:
        """Return the report alone, with these changes; texts of other hosts are cut."""
        own = {name: getattr(self, name) for name in field_names(Report)}
        cut = {"reason": self.reason[:MAX_TEXT], "cause": self.cause[:MAX_TEXT]}
        sources = filter(None, map(as_source, self.sources[:MAX_SOURCES]))
        return Report(**{**own, **cut, "sources": [*sources], **changes})


class End(Message):
    """How the chief has ended."""

    state: str
    reason: str = ""


class OfferedFile(Message):
    path: str
    size: int


class Offer(Message):
    """A checkpoint with its files, or a list of `size` bytes: see replication/."""

    name: str
    size: int = 0
    files: List[OfferedFile] = field(default_factory=list)


class Answer(Record):
    """What the chief's supervisor answers; before that, the fields have these defaults.

    `ended` is None before the chief's end, `checkpoint` and `outputs` are what it offers now. The
    lists `unfinished` (the tasks that have not reported their end) and `sources` (the addresses of
    the run's hosts) grow with the run, so they are sent only to those that know others; `lists` is
    their digest. `seen_from` is the address from which the request came: anybody may have passed
    that on, so it counts only once the task has it among the sources of a report, which are signed.
    `round` is the newest of rounds.py, with the task `lost` that began it. A queued task gets the
    `turn` and the `priority` of its run. The others answer what was asked.
    """

    ended: Optional[End] = None
    checkpoint: Optional[Offer] = None
    outputs: Optional[Offer] = None
    lists: str = ""
    unfinished: List[str] = field(default_factory=list)
    sources: List[str] = field(default_factory=list)
    seen_from: str = ""
    round: int = 0
    lost: str = ""
    turn: str = WAIT
    priority: Optional[str] = None
    advance: int = 0
    backup: Optional[Offer] = None
    trial: Optional[TrialOrder] = None


def without_defaults(message: Fields) -> Dict[str, Any]:
    """Return a message as JSON; what has its default is left out, because every second counts."""
    defaults = to_json(type(message)())
    return {name: v for name, v in to_json(message).items() if v != defaults[name]}
