"""The list of trials, which the chief's supervisor has: it hands them out to the slots.

A slot says which attempt of which trial it has, or how that ended, and is answered which one it has
now. Both sides repeat what they say, so a message that is lost changes nothing. A slot that is
silent for LOST_AFTER_S loses its trial to another slot; it has ended it by itself before (see
slot.py), and what it reports of it later does not count.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Dict, Iterable, List, Optional, Set, Tuple

from ....shared.filesystem import append_line
from ....shared.protocol.record import replace
from ....shared.records import Launch
from ....shared.trials import (
    BAD,
    ENDED,
    FAILED,
    IDLE,
    INTERRUPTED,
    LOST,
    MAX_REASON,
    OVER,
    RUNNING,
    SUCCEEDED,
    TrialOrder,
    TrialRecord,
    newest,
    shorten,
    to_line,
)
from ... import paths
from ...reports.trials import list_trials
from .halving import Halving

LOST_AFTER_S = 120.0  # longer than a network or a busy host is silent, and far shorter than a trial
MAX_SAME_FAILURES = 10
RECORD_EVERY_S = 5.0  # a better value of a trial that goes on
MAX_JOURNAL_BYTES = 64 << 20


def lost_after_s(launch: Launch) -> float:
    """Return after how many seconds of silence a slot has lost its trial."""
    return min(LOST_AFTER_S, launch.heartbeat.orphan_timeout_s)


class Journal:
    """The file in which a slot, or the chief's supervisor, records trials."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._path = paths.trials(launch.project, launch.run, launch.task)

    def add(self, record: TrialRecord) -> None:
        """Append a record. A disk that is full, or fails, costs records, and no trial."""
        with suppress(OSError):
            append_line(self._path, to_line(record), MAX_JOURNAL_BYTES, shorten)

    def on_this_host(self) -> List[TrialRecord]:
        """Return the newest record of each trial that the slots of this host have recorded. A trial
        of theirs that had not ended is interrupted: this slot starts after all of them."""
        own = paths.tasks(self._launch.project, self._launch.run)
        recorded = list_trials(self._launch.project, self._launch.run).trials
        return [
            replace(each, state=INTERRUPTED) if each.state == RUNNING and each.slot in own else each
            for each in recorded
        ]


class Board:
    """The trials of a run. `report` may be called from any thread."""

    def __init__(self, launch: Launch, journal: Journal) -> None:
        self._settings, self._chief = launch.trials, launch.task
        self._lost_after_s = lost_after_s(launch)
        self._journal = journal
        self._lock = threading.Lock()
        self._started_at = time.monotonic()
        self._is_resumed = launch.limits.age_s > 0
        self._reported_at = dict.fromkeys(launch.heartbeat.tasks, self._started_at)
        self._silent = set(launch.heartbeat.tasks) - {launch.task}  # those that never reported
        self._records: Dict[int, TrialRecord] = {}
        self._failures: Dict[int, Set[int]] = {}
        self._assigned: Dict[str, TrialRecord] = {}
        self._recorded: Dict[int, Tuple[Optional[float], float]] = {}  # the value, and when
        self._waiting = set(range(len(launch.trials.points)))
        self._full: Set[str] = set()
        self._kind, self._same, self._has_good = "", 0, False
        self._failure = ""
        self._halving = Halving(launch.trials)
        self._learn(journal.on_this_host(), record=False)

    def report(
        self, slot: str, trial: TrialRecord, recorded: Iterable[TrialRecord] = ()
    ) -> TrialOrder:
        """Take what a slot says of its trial, and what its host has recorded before; return which
        trial it has."""
        with self._lock:
            self._reported_at[slot] = time.monotonic()
            self._silent.discard(slot)
            if self._is_resumed:  # no honest host has recorded anything before
                self._learn(recorded, record=True)
            self._take_from_silent_slots()
            assigned = self._assigned.get(slot)
            if assigned and (trial.trial, trial.attempt) == (assigned.trial, assigned.attempt):
                if trial.state == RUNNING:
                    return self._continue(slot, trial)
                del self._assigned[slot]
                self._end(replace(trial, slot=slot))
            elif assigned:  # it did not get the last answer
                return TrialOrder(assigned.trial, assigned.attempt)
            return self._next(slot)

    def _continue(self, slot: str, trial: TrialRecord) -> TrialOrder:
        trial = replace(trial, at=self._assigned[slot].at, slot=slot)  # by this host's clock
        self._assigned[slot] = self._records[trial.trial] = trial
        value, at = self._recorded.get(trial.trial, (None, -RECORD_EVERY_S))
        now = time.monotonic()
        if trial.value != value and now > at + RECORD_EVERY_S:
            self._recorded[trial.trial] = trial.value, now
            self._journal.add(trial)
        return TrialOrder(trial.trial, trial.attempt, stop=self._halving.judge(trial))

    def _next(self, slot: str) -> TrialOrder:
        if self._is_over():
            return TrialOrder(OVER, failure=self._failure or self._all_failed())
        if slot in self._full or not self._may_start():
            return TrialOrder(IDLE)
        # The lowest one: an earlier trial that is tried again comes before new ones.
        number = min((each for each in self._waiting if not self._may_run(each)), default=None)
        if number is None:
            return TrialOrder(IDLE)
        self._waiting.remove(number)
        self._recorded.pop(number, None)
        last = self._records.get(number)
        attempt = last.attempt + 1 if last else 1
        self._assigned[slot] = trial = TrialRecord(number, attempt, RUNNING, slot, at=time.time())
        self._apply(trial)
        return TrialOrder(number, attempt)

    def _is_over(self) -> bool:
        if self._assigned:
            return False
        if not self._failure and self._waiting and self._living() <= self._full:
            self._failure = "the disks of all slots that answer are full"
        return bool(self._failure) or not self._waiting

    def _living(self) -> Set[str]:
        """Return the slots that are not silent."""
        since = time.monotonic() - self._lost_after_s
        return {slot for slot, reported_at in self._reported_at.items() if reported_at >= since}

    def _may_start(self) -> bool:
        """Return whether a trial may start now: after a resume, when all hosts have said what they
        know; after failures alone, one at a time, because the next one probably fails, too."""
        wait_s = time.monotonic() - self._started_at
        if self._is_resumed and self._silent and wait_s < self._lost_after_s:
            return False
        is_careful = bool(self._kind) and not self._has_good
        return not self._failure and not (is_careful and self._assigned)

    def _may_run(self, number: int) -> bool:
        """Return whether a trial may still run on a host that the resumed run has left out."""
        last = self._records.get(number)
        is_new = time.monotonic() - self._started_at < self._lost_after_s
        return last is not None and last.state == RUNNING and is_new

    def _take_from_silent_slots(self) -> None:
        for slot, trial in list(self._assigned.items()):
            silent_s = time.monotonic() - self._reported_at[slot]
            if slot != self._chief and silent_s > self._lost_after_s:
                del self._assigned[slot]
                reason = "no message from {} for {:.0f} s".format(slot, silent_s)
                seconds = round(time.time() - trial.at, 3)
                self._end(replace(trial, state=LOST, reason=reason, seconds=seconds))

    def _end(self, trial: TrialRecord) -> None:
        trial = replace(trial, at=time.time(), reason=trial.reason[:MAX_REASON])
        self._halving.judge(trial)
        if trial.is_full:
            self._full.add(trial.slot)
        self._apply(trial)
        if trial.state in ENDED and trial.trial not in self._waiting:
            self._count(trial)

    def _apply(self, trial: TrialRecord, record: bool = True) -> None:
        """Make a record the newest one of its trial; it waits again if it may be tried again."""
        if record:
            self._journal.add(trial)
        self._records[trial.trial] = trial
        failed = self._failures.setdefault(trial.trial, set())
        if trial.may_be_retried and not trial.is_full:  # a full slot gets no other one
            failed.add(trial.attempt)
        is_tried_again = trial.may_be_retried and len(failed) < self._settings.attempts
        if trial.state == INTERRUPTED or is_tried_again:
            self._waiting.add(trial.trial)
        elif trial.state == LOST:
            self._apply(replace(trial, state=FAILED, exit=1))
        elif trial.state != RUNNING or record:
            self._waiting.discard(trial.trial)

    def _learn(self, recorded: Iterable[TrialRecord], record: bool) -> None:
        """Take what a host has recorded before the run was resumed."""
        for each in recorded:
            trial = replace(each, reason=each.reason[:MAX_REASON])
            known = self._records.get(trial.trial)
            is_point = 0 <= trial.trial < len(self._settings.points)
            is_news = not known or known.key != trial.key
            both = filter(None, [known, trial])
            if is_point and is_news and newest(both)[trial.trial] is trial:
                self._apply(trial, record)
                self._halving.judge(trial)
                self._has_good = self._has_good or self._is_good(trial)

    def _is_good(self, trial: TrialRecord) -> bool:
        has_value = bool(trial.rungs) or not self._settings.objective  # a number, or NaN
        return trial.state == BAD or (trial.state == SUCCEEDED and has_value)

    def _count(self, trial: TrialRecord) -> None:
        """Count trials that fail in the same way. The rest is not tried after ten of them, or if
        the first ones end without the objective."""
        if self._is_good(trial):
            self._kind, self._same, self._has_good = "", 0, True
            return
        kind = ": ".join(trial.reason.split(": ")[:2])
        self._same = self._same + 1 if kind == self._kind else 1
        self._kind = kind
        if trial.state == SUCCEEDED:
            if not self._has_good and not self._assigned:
                self._failure = "trial {}: {}".format(trial.trial, trial.reason)
        elif self._same >= MAX_SAME_FAILURES and self._waiting:
            self._failure = "{} trials in a row failed in the same way: {}".format(
                self._same, trial.reason
            )

    def _all_failed(self) -> str:
        records = self._records.values()
        if any(each.state != FAILED for each in records):
            return ""
        last = max(records, key=lambda each: each.at)
        return "no trial succeeded; the last one: {}".format(last.reason)
