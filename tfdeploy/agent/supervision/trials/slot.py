"""The supervisor of a slot: it runs one trial after the other, as the chief's supervisor says."""

from __future__ import annotations

import glob
import os
import time
from contextlib import suppress
from typing import Any, List, Optional

from ....shared import records
from ....shared.filesystem import NO_SPACE
from ....shared.objective import Objective
from ....shared.outcome import describe_exit
from ....shared.protocol.record import replace
from ....shared.records import FAILED, READY, SUCCEEDED, Launch
from ....shared.trials import BAD, IDLE, INTERRUPTED, OVER, RUNNING, TrialOrder, TrialRecord
from ... import paths
from ...machine import process
from ...releases import release_files, work_directory
from ...releases.copy_release import remove_copies
from .. import restart
from ..restart import Exit
from ..spawn import spawn
from ..supervisor import Supervisor
from ..termination import Order
from ..watch import AttemptWatch
from .board import Journal, lost_after_s

IDLE_TICK_S = 0.1
READ_EVERY_S = 1.0
READ_SHARE = 0.02  # of the time, at most: a trial may write a million values
# Of `lost_after_s`: after how long without an answer a slot ends its trial, and how long that takes
# at most. The rest is for a message on its way.
FENCE, GRACE = 0.5, 0.25
MAX_POINT = 200


class SlotSupervisor(Supervisor):
    """Supervises a slot. `_trial` is what it reports of its trial, `_end` why that ends early."""

    def __init__(self, launch: Launch, task_dir: str, lease_descriptors: List[int]) -> None:
        super().__init__(launch, task_dir, lease_descriptors)
        self._journal = Journal(launch)
        self._trial = TrialRecord(IDLE, 0, "", launch.task)
        self._objective: Optional[Objective] = None
        self._started_at = self._read_next_at = 0.0
        self._end: Optional[Order] = None
        self._end_state = INTERRUPTED
        self._is_running = False

    def run(self) -> None:
        """Run trials until there is none left, or the slot is ended."""
        while True:
            order = self._wait_for_trial()
            if order is None:
                break
            if order.trial == OVER:
                state = FAILED if order.failure and self.launch.is_chief else SUCCEEDED
                self.write(state, exit=int(state == FAILED), reason=order.failure, pid=None)
                break
            if not self._run_trial(order):
                break
        self.leave()

    def _wait_for_trial(self) -> Optional[TrialOrder]:
        """Return the next trial, or that there is none; None if an order has ended the slot."""
        is_asking = True
        while True:
            order = self.membership.exchange(self._trial, soon=is_asking)
            if order is not None and order.trial != IDLE:
                return order
            if is_asking:
                full = "no trial starts here: its disk is full"
                reason = full if self._trial.is_full else "waits for a trial"
                self.write(READY, reason=reason, pid=None)
            is_asking = False
            deadline = time.monotonic() + IDLE_TICK_S
            if not self._wait(lambda: deadline - time.monotonic()):  # noqa: B023 - called at once
                return None

    def _run_trial(self, order: TrialOrder) -> bool:
        """Run a trial to its end. Return False if the slot itself must end."""
        self._record(TrialRecord(order.trial, order.attempt, RUNNING, self.launch.task))
        self._started_at, self._end, self._order = time.monotonic(), None, None
        self._objective, self.attempts = None, []
        outcome, cause = self._run_attempt()
        self._is_running = False
        self.log.flush()
        remove_copies(self.launch.of_trial(order.trial), paths.trial(self.task_dir, order.trial))
        ending, self._order = self._order, None
        if ending is None or ending is self._end or ending.state in (records.BACKOFF, FAILED):
            self._record_end(outcome)
        else:
            self._order = ending
            ended = {"state": INTERRUPTED, "reason": ending.reason, "seconds": self._seconds()}
            self._journal.add(replace(self._trial, at=time.time(), **ended))
            self.write(
                ending.state, reason=ending.reason, cause=cause, planned=ending.planned, pid=None
            )
            return False
        with suppress(OSError):
            self.log.copy_to("")
        return True

    def _start_process(self) -> Any:
        number = self._trial.trial
        launch, folder = self._prepare(number)
        child = spawn(launch, self.task_dir, self.mark, self.log.descriptor, folder)
        words = " ".join("{}={}".format(*p) for p in self.launch.trials.points[number].items())
        title = "trial {}: {}".format(number, words[:MAX_POINT])
        self.state, self._is_running = replace(self.state, reason=title), True
        return child

    def _exit_by_itself(self, watch: AttemptWatch) -> Exit:
        code = watch.child.wait()
        ended, _ = self._end_rest(watch)
        self.log.flush()
        if code == 0:
            return Exit(code, detail=ended)
        return Exit(code, reason=_describe_failure(code, self.log.tail) + self._memory_detail(code))

    def _prepare(self, number: int) -> Any:
        """Fill the trial's directory, with what an earlier attempt on this host has written. Return
        its launch and the directory. Raises OSError."""
        launch, folder = self.launch.of_trial(number), paths.trial(self.task_dir, number)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        run = glob.escape(os.path.dirname(self.task_dir))
        for earlier in glob.glob(os.path.join(run, "*", "work", paths.TRIALS, str(number))):
            if not os.path.exists(folder):
                os.rename(earlier, folder)
        os.makedirs(folder, exist_ok=True)
        work_directory.fill(launch, folder)
        log, objective = folder + ".log", self.launch.trials.objective
        self.log.copy_to(log)
        if objective:
            self._objective = Objective(
                objective,
                self.launch.trials.mode,
                folder,
                log,
                release_files.of_launch(launch).is_one_in(folder),
            )
        return launch, folder

    def _end_all(self, leader: int) -> List[int]:
        grace_s = min(self.launch.limits.stop_grace_s, lost_after_s(self.launch) * GRACE)
        return process.end_all(self.mark, leader, grace_s, os.getpid())

    def _run_order(self) -> Optional[Order]:
        """Return the order for the slot, or for the trial that it runs."""
        order = super()._run_order()
        if order is None and self._is_running:
            self._end = self._end or self._trial_order()
            order = self._end
        return order

    def _trial_order(self) -> Optional[Order]:
        if time.monotonic() > self._read_next_at:
            self._read_objective()
        silent_s, own = self.membership.silent_s(), self._trial
        self._end_state = INTERRUPTED
        if silent_s > lost_after_s(self.launch) * FENCE:
            chief = self.launch.heartbeat.chief
            return Order("no message from {} for {:.0f} s".format(chief, silent_s))
        answer = self.membership.exchange(own)
        if answer is None:
            return None
        if (answer.trial, answer.attempt) != (own.trial, own.attempt):
            return Order("another slot has the trial")
        self._end_state = BAD if answer.stop else INTERRUPTED
        return Order(answer.stop) if answer.stop else None

    def _read_objective(self) -> None:
        begin = time.monotonic()
        if self._objective:
            self._objective.read()
            value, step = self._objective.best()
            rungs = self._objective.rungs()
            self._trial = replace(self._trial, value=value, step=step, rungs=rungs)
        now = time.monotonic()
        self._read_next_at = now + max(READ_EVERY_S, (now - begin) / READ_SHARE)

    def _record(self, trial: TrialRecord) -> None:
        self._trial = replace(trial, at=time.time())
        if not self.launch.is_chief:  # its board records it
            self._journal.add(self._trial)

    def _record_end(self, ended: Exit) -> None:
        """Record how the process of the trial ended, with the last values of its objective."""
        self._read_objective()
        text = self.log.tail.decode(errors="replace") + ended.reason
        is_full = ended.code != 0 and any(words in text for words in NO_SPACE)
        if ended.stopped:
            state, reason = self._end_state, ended.reason
        elif ended.code == 0 and not ended.reason:
            notes = filter(None, (ended.detail, self._note()))
            state, reason = records.SUCCEEDED, "; ".join(notes)
        else:
            state, reason = FAILED, ended.reason
        self._record(
            replace(
                self._trial,
                state=state,
                seconds=self._seconds(),
                exit=1 if ended.final else ended.code,
                reason=reason,
                is_full=is_full,
            )
        )

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started_at, 3)

    def _note(self) -> str:
        """Return what is missing after a success: a value of the objective."""
        objective = self._objective
        if not objective or self._trial.value is not None:
            return ""
        if objective.points:
            return "its {} is no number".format(objective.name)
        names = ", ".join(objective.names) or "no scalar"
        return "it wrote no {}; it wrote {}".format(objective.name, names)


def _describe_failure(code: int, tail: bytes) -> str:
    """Return the exit code and the exception, or else the last line, which no signal explains."""
    printed = "" if code < 0 else tail.decode(errors="replace").strip()
    last = (restart.last_traceback(tail) or printed).rpartition("\n")[2].strip()
    return ": ".join(filter(None, (describe_exit(code), last)))
