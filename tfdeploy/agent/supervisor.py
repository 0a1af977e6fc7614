"""One task's keeper: begins it, watches it, begins it again or ends it, and writes the truth."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from dataclasses import replace

from . import TYPE_CHECKING, kin, leases, lock, paths, process, records, restart
from .log import Log
from .records import BACKOFF, FAILED, Launch, TaskState
from .restart import Attempt, Decision, Exit
from .spawn import spawn
from .watch import SETTLED_S, STOP, TICK_S, WATCHED, Watch

if TYPE_CHECKING:
    import subprocess
    from typing import Any, List, Optional, Tuple

    from .fate import Order

PR_SET_CHILD_SUBREAPER = 36  # source: linux/prctl.h
# What a full disk leaves in a log, whoever met it (strerror of ENOSPC and EDQUOT).
NO_SPACE = (b"No space left on device", b"Disk quota exceeded")


def supervise(task_dir: str, announced: int, *held: int) -> None:
    """Keep the task of `task_dir` until it has ended. Once it is, a word is written to the
    descriptor `announced`; `held` are those of its lock and of its leases, taken by who began us.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # What the task leaves behind becomes our child, not init's: so all of it can be found.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    lock.adopt(held[0])
    leases.adopt(held[1:])
    launch = records.load(Launch, paths.launch(task_dir))
    keeper = Supervisor(launch, task_dir, list(held[1:]))
    os.write(announced, b"ours\n")
    os.close(announced)
    try:
        keeper.keep()
    except Exception as error:
        _print(error)
        process.end(keeper.mark, None, 0.0, os.getpid())
        keeper.write(FAILED, reason="its supervisor failed, see supervisor.log")
        keeper.let_go()
    finally:
        os.close(held[0])


class Supervisor:
    """`state` is what state.json holds; `history` every attempt there was."""

    def __init__(self, launch: Launch, task_dir: str, leases_held: List[int]) -> None:
        self.launch = launch
        self.task_dir = task_dir
        self.mark = process.mark(launch.project, launch.run, launch.task)
        self.history: List[Attempt] = []
        self.state = TaskState(records.STARTING, time.time(), boot=paths.boot())
        self._leases = leases_held
        self._order: Optional[Order] = None  # the last one that ended the task
        log = paths.log(launch.project, launch.run, launch.task)
        self.log = Log(log, launch.log_limit_bytes, os.path.join(task_dir, "reserve"))
        self.kin = kin.join(launch, task_dir, lambda: self.state)
        self.write(records.STARTING)

    def keep(self) -> None:
        """Attempt after attempt, until one is the last."""
        while True:
            ended, cause = self._attempt()
            decision = self._decided(ended)
            self.log.settle()
            self.write(decision.state, exit=ended.code, reason=decision.reason, cause=cause)
            if decision.state != BACKOFF or not self._waited(decision.delay_s):
                break
        self.let_go()

    def write(self, state: str, **more: Any) -> None:
        """Put the state on disk, and tell the run."""
        self.state = replace(self.state, state=state, since=time.time(), **more)
        try:
            records.write(paths.state(self.task_dir), records.to_json(self.state))
        except OSError as error:  # a disk that fails must not cost a training that could go on
            _print(error)
        self.kin.changed()

    def _attempt(self) -> Tuple[Exit, str]:
        """One life of the process: how it ended, and the other task that is to blame."""
        self.history.append(Attempt(time.monotonic(), ready=False))
        self.log.tail = b""  # what an earlier one said is not why this one ends
        try:
            child = spawn(self.launch, self.task_dir, self.mark, self.log.descriptor)
        except OSError as error:
            why = "{} can't be run: {}".format(self.launch.argv[0], error.strerror)
            return Exit(127, why=why, final=True), ""
        # Without a port there's nothing to wait for, though it has yet to show that it works.
        begun = records.READY if self.launch.asked_port is None else records.RUNNING
        self.write(begun, pid=child.pid, restarts=len(self.history) - 1)
        order = self._order = self._watched(child)
        if order is None:
            return self._ended_by_itself(child), ""
        if order.state == BACKOFF:
            process.dump(self.mark, child.pid)
        self._end_all(child.pid)
        stopped = order.state == records.STOPPED
        ended = Exit(child.wait(), stopped, order.why, final=order.state == FAILED)
        return ended, order.cause

    def _watched(self, child: subprocess.Popen) -> Optional[Order]:  # type: ignore[type-arg]
        def ready() -> None:
            self.history = restart.readied(self.history)
            if self.state.state != records.READY:
                self.write(records.READY)

        watch = Watch(child, self.launch, self.task_dir, self.mark, self.log, self._ordered, ready)
        return watch.until_end()

    def _ordered(self) -> Optional[Order]:
        """What the run wants; asked at every tick, which is often enough for the leases too."""
        leases.answer(self._leases)
        return self.kin.order()

    def _ended_by_itself(self, child: subprocess.Popen) -> Exit:  # type: ignore[type-arg]
        code = child.wait()
        left = self._end_all(child.pid)
        if code == 0:
            return Exit(code)
        if left:
            why = "{}; processes {} could not be ended".format(restart.named(code), left)
            return Exit(code, why=why, final=True)
        if self.launch.asked_port is None and not any(attempt.ready for attempt in self.history):
            why = "{}, within {:g} s of its start".format(restart.named(code), SETTLED_S)
            return Exit(code, why=why, final=True)
        self.log.settle()
        if code > 0 and any(words in self.log.tail for words in NO_SPACE):
            why = "{}: the disk is full; tfdeploy runs shows by what, prune makes room".format(
                restart.named(code)
            )
            return Exit(code, why=why, final=True)
        return Exit(code, final=self.kin.has_ended())

    def _end_all(self, leader: int) -> List[int]:
        return process.end(self.mark, leader, self.launch.stop_grace_s, os.getpid())

    def _decided(self, ended: Exit) -> Decision:
        now, chance = time.monotonic(), os.urandom(1)[0] / 255
        return restart.decide(self.launch.policy, self.history, ended, now, chance)

    def _waited(self, delay_s: float) -> bool:
        """Wait for the next attempt; False where the task is not to be begun again after all."""
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline:
            caught = signal.sigtimedwait(WATCHED, min(TICK_S, delay_s))
            asked = STOP if caught and caught.si_signo == signal.SIGTERM else None
            order = self._order = asked or self._ordered()
            if order is not None:
                self.write(order.state, reason=order.why, cause=order.cause)
                return False
        return True

    def let_go(self) -> None:
        """The GPUs and ports are free for others now, though the chief's news may still go round.
        Who was asked to stop goes at once: whoever asked sees to the others."""
        kept = self._leases[1:2] if self.launch.is_chief else []  # of the port where it is told
        leases.release([lease for lease in self._leases if lease not in kept])
        self.log.close()
        if self._order is not STOP:
            self.kin.leave()
        self.kin.close()
        leases.release(kept)


def _print(error: BaseException) -> None:
    """To supervisor.log. (The module traceback would cost every start 2 ms.)"""
    sys.excepthook(type(error), error, error.__traceback__)
