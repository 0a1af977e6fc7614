"""What is recorded of a trial, by its slot and by the chief's supervisor, and what these two say to
each other.

A trial is waiting until the chief's supervisor hands it out to a slot. A record is of one attempt;
the newest one of a trial is its state. Both sides record: what a host has recorded is still known
if the chief's host is lost.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, Iterable, List, Optional

from .protocol.message import MOST, Message, parse_lines
from .protocol.record import Record, field, to_json

RUNNING, SUCCEEDED, FAILED = "RUNNING", "SUCCEEDED", "FAILED"
BAD = "BAD"  # ended, because others were better
LOST = "LOST"  # the slot was silent for too long
INTERRUPTED = "INTERRUPTED"  # by the end of its slot; it runs again when the run is resumed
WAITING = "WAITING"
ENDED = (SUCCEEDED, FAILED, BAD)
RANKS = {state: rank for rank, state in enumerate((RUNNING, INTERRUPTED, LOST, BAD, FAILED))}
IDLE, OVER = -1, -2  # no trial: for now, or ever
MAX_REASON = 300


class TrialRecord(Record):
    """An attempt of a trial in a slot.

    `at` is when its state was recorded, in seconds since 1970 by the clock of that host, `seconds`
    how long it ran. `exit` is its exit code. `value` is the best one of the objective so far,
    reached at `step`, None if there is none that is a number. `rungs` has the best values up to the
    1st, 3rd, 9th … value of the objective. `is_full` says that the disk of its host is full.
    """

    trial: int
    attempt: int
    state: str
    slot: str
    at: float = 0.0
    seconds: float = 0.0
    exit: Optional[int] = None
    reason: str = ""
    value: Optional[float] = None
    step: Optional[int] = None
    rungs: List[Optional[float]] = field(default_factory=list)
    is_full: bool = False

    @property
    def key(self) -> str:
        return "{} {} {}".format(self.trial, self.attempt, self.state)

    @property
    def may_be_retried(self) -> bool:
        """Return whether another attempt may end better: a signal, the host or its disk ended it,
        not the program."""
        by_signal = self.exit is None or self.exit < 0 or self.exit > 128
        return self.state == LOST or (self.state == FAILED and (by_signal or self.is_full))


class TrialOrder(Message):
    """What the chief's supervisor answers: which attempt of which trial the slot has, or IDLE or
    OVER. `stop` is why the slot ends it. `failure` is why the run has failed, if it has."""

    trial: int
    attempt: int = 0
    stop: str = ""
    failure: str = ""


def is_number(value: float) -> bool:
    """Return whether a message can have the value: NaN and infinity are no objective."""
    return math.isfinite(value) and abs(value) < MOST


def to_line(record: TrialRecord) -> bytes:
    return json.dumps(to_json(record)).encode() + b"\n"


def shorten(lines: List[bytes]) -> List[bytes]:
    """Return the newest line of each trial, of a file that is too long."""
    return [to_line(each) for each in newest(parse_lines(TrialRecord, b"".join(lines))).values()]


def newest(records: Iterable[TrialRecord]) -> Dict[int, TrialRecord]:
    """Return the newest record of each trial, by number. An attempt that succeeded in time counts
    more than what others recorded of it."""
    found: Dict[int, TrialRecord] = {}
    for record in records:
        last = found.get(record.trial)
        if last is None or _age(last) <= _age(record):
            found[record.trial] = record
    return found


def _age(record: TrialRecord) -> Any:
    # The chief's supervisor hears of values that the slot itself records at the end.
    return record.attempt, RANKS.get(record.state, len(RANKS)), len(record.rungs)
