"""The supervisor of one task: start it, watch it, restart or end it, and record its state."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

from ...shared import filesystem, own_folders, records
from ...shared.filesystem import NO_SPACE
from ...shared.outcome import describe_exit
from ...shared.protocol.record import Record, replace
from ...shared.records import BACKOFF, FAILED, QUEUED, STARTING, STRICT, Launch, TaskState
from .. import paths
from ..machine import guard, leases, process
from ..machine.peers import PeerList
from ..reports import pace
from ..reports.history import History
from . import left_behind, membership, restart, shortage
from .left_behind import LeftBehind
from .log import TaskLog
from .restart import Attempt, Decision, Exit
from .spawn import spawn
from .termination import Order
from .turn import Turn
from .watch import (
    FIRST_TICK_S,
    NOT_READY,
    SETTLED_S,
    SIGNALS,
    STOP,
    TICK_S,
    AttemptWatch,
    order_of_signal,
)

PACE_EVERY_S = 30.0
NEWS_S = 2.0  # a task reports its end within this time, even if its process takes long to exit


class Supervisor:
    """Runs the attempts of one task. `state` is what state.json contains; `attempts` all of them.

    `lease_descriptors` are those of a chief's heartbeat port, the task's port and its GPUs, in this
    order; a queued task gets those that it waits for when its turn has come.
    """

    def __init__(self, launch: Launch, task_dir: str, lease_descriptors: List[int]) -> None:
        self.launch = launch
        self.task_dir = task_dir
        self.mark = process.mark(launch.project, launch.run, launch.task)
        self.attempts: List[Attempt] = []
        self._history = History(paths.history(launch.project, launch.run, launch.task))
        first = QUEUED if launch.turn.submitted else STARTING
        self.state = TaskState(first, time.time(), boot=paths.boot_id())
        self._leases = lease_descriptors
        self._oom_kills = 0  # of the machine, at the start of the last attempt
        self._order: Optional[Order] = None  # the last one that ended the task
        log = paths.log(launch.project, launch.run, launch.task)
        self.log = TaskLog(log)
        ports = guard.hold_ports(task_dir) if launch.endpoint.network == STRICT else None
        self._peers = PeerList(paths.peers(task_dir), launch.endpoint.no_proxy, ports)
        self.membership = membership.join(launch, task_dir, lambda: self.state, self._peers.sources)
        self._turn = Turn(launch, task_dir, self.membership) if launch.turn.submitted else None
        self.write(first)

    def run(self) -> None:
        """Run one attempt after another until the last one, then leave the run."""
        while self._wait_for_backup():
            outcome, cause = self._run_attempt()
            decision = self._decide(outcome)
            self.log.flush()
            if decision.state == BACKOFF and self.attempts[-1].ready:
                self.membership.rounds.lose_attempt()
            planned = self._order is not None and self._order.planned
            self.write(
                decision.state,
                exit=outcome.code,
                reason=decision.reason,
                cause=cause or decision.cause,
                planned=planned,
            )
            if decision.state != BACKOFF or not self._wait_for_restart(decision.delay_s):
                break
        self.leave()

    def record_pace(self) -> None:
        """Start the thread that keeps how fast the task trains."""

        def record() -> None:
            time.sleep(PACE_EVERY_S)
            report = self.membership.report_pace
            pace.record(self.launch, self.task_dir, lambda: self.state.pid, report, PACE_EVERY_S)

        threading.Thread(target=record, daemon=True).start()

    def write(self, state: str, **changes: Any) -> None:
        """Write the state to disk and report it to the run."""
        changed = replace(self.state, state=state, since=time.time(), **changes)
        self._history.add(changed)  # first: a collect that sees the end of the task gets it whole
        self._store(changed)
        self.membership.state_changed()

    def _store(self, state: TaskState) -> None:
        self.state = state
        _write(paths.state(self.task_dir), state)

    def _run_attempt(self) -> Tuple[Exit, str]:
        """Run the process once. Return how it ended, and the other task that is the root cause."""
        self.attempts.append(Attempt(time.monotonic(), ready=False))
        self.membership.rounds.start_attempt()
        self._peers.resolve()
        self.log.tail = b""  # the output of an earlier attempt does not explain this one's end
        self._oom_kills = shortage.oom_kills()
        try:
            unsafe, _ = own_folders.find_unsafe(self.task_dir)
            if unsafe:
                return Exit(126, reason=unsafe, final=True), ""
            child = self._start_process()
        except OSError as error:
            return restart.not_started(self.launch.process.argv[0], error), ""
        # Without a port the task is READY at once, though it has not proved yet that it works.
        state = records.READY if self.launch.endpoint.is_ready_at_once else records.RUNNING
        self.write(state, pid=child.pid, restarts=len(self.attempts) - 1, exposed="")
        watch = self._make_watch(child)
        order = self._order = self._watch(watch)
        if order is None:
            return self._exit_by_itself(watch), ""
        together = order.state == BACKOFF and self.membership.rounds.order() is not None
        if order.state == BACKOFF and not together:
            process.dump_stacks(self.mark, child.pid)
        has_failed = order.state == FAILED and self._has_printed_a_failure()
        self._end_all(child.pid)
        code = watch.child.wait()
        if has_failed and order.cause and code == 1:
            # It was about to end when the other one's end arrived.
            return Exit(code, final=True, exception=self._exception(code)), ""
        stopped = order.state == records.STOPPED
        is_final = order.state == FAILED or self.membership.run_has_ended()
        peers = self._ended_peers(order.reason)
        outcome = Exit(
            code, stopped, order.reason, final=is_final, together=together, ended_peers=peers
        )
        return outcome, order.cause

    def _ended_peers(self, reason: str = "") -> List[str]:
        """Return the tasks that have ended and that this one would have to meet after a restart. A
        restarted task that was `not READY` may wait for them, too, whatever its program is."""
        if self.launch.trains_in_step or reason.startswith(NOT_READY):
            return self.membership.ended_peers()
        return []

    def _start_process(self) -> subprocess.Popen:  # type: ignore[type-arg]
        return spawn(self.launch, self.task_dir, self.mark, self.log.descriptor)

    def _watch(self, watch: AttemptWatch) -> Optional[Order]:
        """Wait for the end of the process, and of what it has left behind if it succeeded. Return
        None if they have ended by themselves, else the order to end them."""
        order = watch.wait()
        while order is None and watch.child.wait() == 0:
            age_s = time.monotonic() - self.attempts[-1].started_at
            left = left_behind.find(self.launch, self.task_dir, self.mark, watch.leaders, age_s)
            if not left:
                break
            self._follow(
                watch, LeftBehind(left, left_behind.program_name(self.launch.process.argv))
            )
            order = watch.wait()
        return order

    def _follow(self, watch: AttemptWatch, left: LeftBehind) -> None:
        self._print(left.description)
        watch.follow(left)
        reason = "; ".join(filter(None, (self.state.reason, left.description)))
        self.write(self.state.state, pid=left.pid, reason=reason)

    def _end_rest(self, watch: AttemptWatch) -> Tuple[str, List[int]]:
        """End what is left of the task after its end. Return what that was, except helpers, as the
        end of a sentence, and the processes that survive. The log names all."""
        if len(watch.leaders) > 1:
            left_behind.let_end(self.mark, watch.leaders)
        left = left_behind.running(self.mark, watch.leaders)
        if left:
            self._print(left_behind.describe_ended(left))
        others = [pid for pid in left if not left_behind.is_helper(pid)]
        return left_behind.describe_ended(others), self._end_all(watch.leaders[0])

    def _print(self, text: str) -> None:
        """Add a line to the task's log."""
        os.write(self.log.descriptor, "[tfdeploy: {}]\n".format(text).encode(errors="replace"))

    def _make_watch(self, child: subprocess.Popen) -> AttemptWatch:  # type: ignore[type-arg]
        def on_ready(reason: str) -> None:
            self.attempts = restart.record_ready(self.attempts)
            if self.state.state != records.READY:
                self.write(records.READY, reason=reason or self.state.reason)

        def on_exposed(ports: str) -> None:
            self._store(replace(self.state, exposed=ports))

        return AttemptWatch(
            child,
            self.launch,
            self.task_dir,
            self.mark,
            self.log,
            lambda: self._run_order() or self.membership.rounds.order(),
            on_ready,
            on_exposed,
        )

    def _run_order(self) -> Optional[Order]:
        """Return the run's order for this task. Called at every tick, so it serves leases, too."""
        leases.drop_queries(self._leases)
        self._peers.add(self.membership.sources())
        return self.membership.order()

    def _exit_by_itself(self, watch: AttemptWatch) -> Exit:
        """Return how a process ended that no order has ended, with the reason if it is final."""
        code = watch.child.wait()
        ended, survivors = self._end_rest(watch)
        self.log.flush()
        if code == 0:
            note = "; " + ended if ended else ""
            return Exit(code, detail=note + restart.note_of_traceback(self.log.tail))
        reason = self._final_reason(code, survivors)
        if reason:
            return Exit(code, reason="{}{}".format(describe_exit(code), reason), final=True)
        is_final, (failed, why) = self.membership.run_has_ended(), self.membership.failed_task()
        together = self.membership.rounds.order()
        if together:  # it noticed the loss itself
            return Exit(code, reason=together.reason, final=is_final, together=True)
        peers = self._ended_peers()
        if code < 0 and not restart.has_crashed(code):
            return Exit(code, final=is_final, detail=self._memory_detail(code), ended_peers=peers)
        tail, count = self.log.tail, self.membership.progress_count
        self.attempts = restart.record_failure(self.attempts, code, tail, count, failed)
        return Exit(
            code, final=is_final, error=restart.peer_error(tail), failed_task=failed,
            why_failed=why, exception=self._exception(code), ended_peers=peers,
            detail=self._port_detail(),
        )  # fmt: skip

    def _exception(self, code: int) -> str:
        """Return the exception after which Python has exited with 1."""
        return restart.exception(self.log.tail) if code == 1 else ""

    def _has_printed_a_failure(self) -> bool:
        """Return whether the program's output ends with a traceback that is not the loss of another
        task."""
        self.log.flush()
        return restart.ends_with_traceback(self.log.tail) and not restart.peer_error(self.log.tail)

    def _memory_detail(self, code: int) -> str:
        """Return what else is known about a death by SIGKILL, as the end of a sentence."""
        if code != -signal.SIGKILL:
            return ""
        return shortage.describe_oom_kill(shortage.oom_kills() - self._oom_kills)

    def _port_detail(self) -> str:
        """Return which other user has the task's port, as the end of a sentence: a lease keeps
        tfdeploy away from it, and no program."""
        port = self.launch.endpoint.port
        user = process.port_user(port) if port is not None else None
        if user in (None, os.geteuid()):
            return ""
        words = "; port {} is taken by a process of another user ({})"
        return words.format(port, process.user_name(user))

    def _final_reason(self, code: int, survivors: List[int]) -> str:
        """Return why a restart would not help after this exit code; "" if it might."""
        if survivors:
            return "; processes {} could not be killed".format(survivors)
        if self.launch.endpoint.is_ready_at_once and not any(
            attempt.ready for attempt in self.attempts
        ):
            start = " less than {:g} s after its start".format(SETTLED_S)
            return ": ".join(filter(None, (start, self._exception(code))))
        if code > 0 and any(words.encode() in self.log.tail for words in NO_SPACE):
            hint = "tfdeploy runs shows what uses it, tfdeploy prune frees space"
            return ": the disk is full; " + hint
        return ""

    def _end_all(self, leader: int) -> List[int]:
        return process.end_all(self.mark, leader, self.launch.limits.stop_grace_s, os.getpid())

    def _decide(self, outcome: Exit) -> Decision:
        now, jitter = time.monotonic(), os.urandom(1)[0] / 255
        return restart.decide(self.launch.policy, self.attempts, outcome, now, jitter)

    def wait_for_turn(self) -> bool:
        """Wait in the queue, if the run was queued. Return False if an order has ended that."""
        if not self._turn:
            return True
        has_come = self._wait(self._turn.left_s, math.inf)
        self._turn.leave_queue()
        self._leases += self._turn.leases
        if has_come:
            self.launch = self._turn.launch
            self.membership.begin()
            # With its GPUs, which may have been chosen just now.
            _write(paths.launch(self.task_dir), self.launch, filesystem.PRIVATE)
            self.write(STARTING)
        return has_come

    def _wait_for_restart(self, delay_s: float) -> bool:
        """Wait for the next attempt; return False if an order has cancelled it. Tasks that train in
        step wait for NEWS_S: what one of them failed of may be the success of another."""
        least_s = NEWS_S if self.launch.trains_in_step else 0.0
        deadline = time.monotonic() + max(delay_s, least_s)
        return self._wait(lambda: deadline - time.monotonic())

    def _wait_for_backup(self) -> bool:
        """Wait until the task has the chief's newest checkpoints, if it needs them. Return False if
        an order has cancelled its attempt."""
        fetch = self.membership.backup(is_restart=bool(self.attempts))
        if fetch is None:
            return True
        fetching = threading.Thread(target=fetch, daemon=True)
        fetching.start()
        if not self.attempts:
            self.write(records.STARTING, reason=records.GETS_CHECKPOINTS)
        may_start = self._wait(lambda: FIRST_TICK_S if fetching.is_alive() else 0.0)
        if may_start and not self.attempts:
            self.write(records.STARTING, reason="")
        return may_start

    def _wait(self, left_s: Callable[[], float], tick_s: float = TICK_S) -> bool:
        """Wait until no time is left; return False if an order has cancelled the next attempt."""
        left = left_s()
        while True:  # at least once: an order may have arrived while the last attempt ended
            caught = signal.sigtimedwait(SIGNALS, min(tick_s, max(0.0, left)))
            order = self._order = (
                order_of_signal(caught) or self._run_order() or self.membership.end_order()
            )
            if order is not None:
                self.write(
                    order.state, reason=order.reason, cause=order.cause, planned=order.planned
                )
                return False
            left = left_s()
            if left <= 0:
                return True

    def leave(self) -> None:
        """Release the leases and leave the run.

        The chief keeps the lease of its heartbeat port until it has reported the end of the run. A
        task that was stopped alone leaves at once: the command that stopped it handles the others.
        """
        heartbeat_lease = self._leases[:1] if self.launch.is_chief else []
        leases.release([lease for lease in self._leases if lease not in heartbeat_lease])
        self.log.flush()
        if self._order is not STOP:
            self.membership.leave(self._order)
            if self.membership.all_others_ended():
                self._store(replace(self.state, others_ended=True))
        self.membership.close()
        leases.release(heartbeat_lease)


def _write(path: str, record: Record, mode: int = 0o666) -> None:
    try:
        records.write(path, records.to_json(record), mode)
    except OSError as error:  # training continues even if the disk fails
        print_to_log(error)


def print_to_log(error: BaseException) -> None:
    """Print to supervisor.log."""
    sys.excepthook(type(error), error, error.__traceback__)
