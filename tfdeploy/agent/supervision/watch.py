"""Watch one attempt of a task, from its start to its end or to the reason for ending it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple, Union

from ...shared import records
from ...shared.outcome import START_FAILED
from ...shared.records import BACKOFF, FAILED, OPEN, STRICT, Launch
from ..machine import grpc_health, guard, listeners, process
from ..machine.guard import ExposedPorts
from ..outputs import event_files
from .left_behind import LeftBehind
from .log import TaskLog
from .termination import Order

if TYPE_CHECKING:
    Process = Union[subprocess.Popen[bytes], LeftBehind]

STOP = Order("on request")
STOP_RUN = Order("on request", stops_run=True)
STOP_SILENTLY = Order(START_FAILED, stops_run=True, silent=True)
# Signals to a supervisor: SIGTERM from any process, SIGUSR1 from `tfdeploy stop`, SIGUSR2 from a
# start that failed and from `tfdeploy resume`.
ORDERS: Dict[int, Order] = {
    signal.SIGTERM: STOP,
    signal.SIGUSR1: STOP_RUN,
    signal.SIGUSR2: STOP_SILENTLY,
}
SIGNALS = (signal.SIGCHLD, *ORDERS)
FIRST_TICK_S = 0.02
TICK_S = 0.25
# Signals and the heartbeat's news end a tick early, so it only matters for limits of time.
READY_TICK_S = 1.0
PROBE_TIMEOUT_S = 3.0
PROBE_EVERY_S = 3.0
FROZEN_PROBES = 3
STALL_CHECK_EVERY_S = 5.0
# A check that comes later than this number of its intervals was late because the machine itself was
# suspended or paused.
STOOD_STILL = 3
# The controller waits ready_timeout_s for the first READY and has the better error message.
READY_MARGIN_S = 15.0
EXPOSED_CHECK_EVERY_S = 30.0
# A task without a port counts as READY for good when it has lived this long.
SETTLED_S = 10.0
NOT_READY = "not READY within"
NOT_MET = "it has not met {} at its port within {:g} s"
EXPOSED = 'the guard does not cover {}; network = "guarded" in hosts.toml would only report it'
UNGUARDED = (
    "everybody could connect to its port: the guard is not loaded in {}; remove what changes "
    'LD_PRELOAD, or set network = "open" in hosts.toml'
)


class AttemptWatch:
    """Waits for the end of one attempt, or for a reason to end it.

    `child` is the task's process; after it, what it has left behind may be watched (`follow`).
    `get_order` is called at every tick and returns the run's order for the task, if any. `on_ready`
    is called when the task has answered on its port with its own name, has met the others, or,
    without a port, has lived for SETTLED_S seconds; it gets what is wrong, "" if nothing is.
    `on_exposed` gets what the guard does not cover, when it changes.
    """

    def __init__(
        self,
        child: Process,
        launch: Launch,
        task_dir: str,
        mark: str,
        log: TaskLog,
        get_order: Callable[[], Optional[Order]],
        on_ready: Callable[[str], None],
        on_exposed: Callable[[str], None],
    ) -> None:
        self.child = child
        self.leaders = [child.pid]
        self.launch = launch
        self.mark = mark
        self.log = log
        self._task_dir = task_dir
        self._get_order = get_order
        self._on_ready = on_ready
        self._on_exposed = on_exposed
        self._exposed_ports = ExposedPorts(mark, child.pid)
        self._exposed_at, self._exposed = -EXPOSED_CHECK_EVERY_S, ""
        self._is_ready = False
        now = time.monotonic()
        self._started_at = self._probed_at = self._events_changed_at = self._stall_checked_at = now
        self._frozen_since: List[float] = []  # the start of each of the last probes that timed out
        self._event_sizes: List[Tuple[str, int]] = []

    def follow(self, left: LeftBehind) -> None:
        """Watch what the process has left behind as the task's process from now on."""
        self.child = left
        self.leaders += left.running

    def wait(self) -> Optional[Order]:
        """Return None if the process has ended by itself, else the order to end it."""
        while True:
            caught = signal.sigtimedwait(SIGNALS, self._tick_s())
            request = order_of_signal(caught)
            if self.child.poll() is not None:
                if caught and request:
                    # Send it again: the supervisor handles it before it restarts the task.
                    os.kill(os.getpid(), caught.si_signo)
                return None
            _reap_orphans(self.leaders)
            if request:
                return request
            order = self._get_order() or self._check_port() or self._check_stall()
            order = order or self._check_exposed()
            if order is not None:
                return order

    def _tick_s(self) -> float:
        """Return the time to the next tick: short at first, longer for a task that loads slowly."""
        if self._is_ready:
            return READY_TICK_S
        return min(TICK_S, FIRST_TICK_S + (time.monotonic() - self._started_at) / 8)

    def _check_port(self) -> Optional[Order]:
        now = time.monotonic()
        if self.launch.endpoint.health_port is None:
            return None if self._is_ready else self._check_without_health_port(now)
        if self._is_ready and now < self._probed_at + PROBE_EVERY_S:
            return None
        gap_s, self._probed_at = now - self._probed_at, now
        verdict = grpc_health.task_health(self.launch, PROBE_TIMEOUT_S)
        if not self._is_ready:
            return self._check_first_ready(verdict, now)
        if verdict != records.FROZEN or gap_s > PROBE_EVERY_S * STOOD_STILL:
            self._frozen_since = []
        else:
            self._frozen_since.append(now)
        return self._frozen_order()

    def _check_without_health_port(self, now: float) -> Optional[Order]:
        """A program need not meet the others at the chief's port: it is not ended for that."""
        age_s, limit_s = now - self._started_at, self.launch.limits.ready_timeout_s
        if self.launch.endpoint.master_port is None:
            if age_s > SETTLED_S:
                self._set_ready()
            return None
        holder = self._rendezvous_holder(self.launch.endpoint.master_port)
        if holder is not None:
            return self._admit(holder)
        if age_s > limit_s:
            self._set_ready(NOT_MET.format(self.launch.heartbeat.chief, limit_s))
        return None

    def _rendezvous_holder(self, port: int) -> Optional[int]:
        """Return the task's process that listens on the chief's port or has a connection to it."""
        if self.launch.is_chief:
            inodes = {inode for _, inode in listeners.of_port(port)}
        else:
            inodes = listeners.connected_to(port)
        processes = process.task_processes(self.mark, self.leaders[0]) if inodes else []
        return next((pid for pid in processes if inodes & process.socket_inodes(pid)), None)

    def _check_first_ready(self, verdict: str, now: float) -> Optional[Order]:
        port = self.launch.endpoint.health_port
        holder = None
        if verdict == records.READY and port is not None:
            # It may have to read all of /proc, so only of a port that answers.
            holder = process.port_holder(port, likely=self.child.pid)
        if holder is not None and self._is_own(holder):
            return self._admit(holder)
        if now - self._started_at > self.launch.limits.ready_timeout_s + READY_MARGIN_S:
            return Order("{} {:g} s".format(NOT_READY, self.launch.limits.ready_timeout_s), BACKOFF)
        return None

    def _admit(self, holder: int) -> Optional[Order]:
        """Call the task READY, unless everybody could connect to this process of it."""
        if self.launch.endpoint.network != OPEN and not guard.is_loaded(holder):
            if not process.read(holder, "cmdline"):
                return None  # it is ending, and has no memory any more
            return Order(UNGUARDED.format(process.describe(holder)), FAILED)
        self._set_ready()
        return None

    def _set_ready(self, reason: str = "") -> None:
        self._is_ready = True
        # A task that has loaded for longer than stall_timeout_s has not stalled.
        self._events_changed_at = self._stall_checked_at = time.monotonic()
        self._on_ready(reason)

    def _is_own(self, holder: int) -> bool:
        """Return whether the process that listens on the port belongs to this task.

        A process left over from another run may answer with the same task name.
        """
        if holder == self.child.pid:
            return True
        return holder in process.task_processes(self.mark, self.leaders[0])

    def _frozen_order(self) -> Optional[Order]:
        if len(self._frozen_since) < FROZEN_PROBES:
            return None
        frozen_s = time.monotonic() - self._frozen_since[0]
        if frozen_s < self.launch.policy.frozen_timeout_s:
            return None
        return Order("FROZEN: no answer on its port for {:.0f} s".format(frozen_s), BACKOFF)

    def _check_stall(self) -> Optional[Order]:
        timeout_s, now = self.launch.policy.stall_timeout_s, time.monotonic()
        if timeout_s is None or not self._is_ready:
            return None
        if now < self._stall_checked_at + STALL_CHECK_EVERY_S:
            return None
        gap_s, self._stall_checked_at = now - self._stall_checked_at, now
        if gap_s > STALL_CHECK_EVERY_S * STOOD_STILL:
            self._events_changed_at = now
        files = event_files.of_task(self._task_dir, self.launch.directory.checkpoint_dir)
        sizes = sorted((file.full_path, file.size) for file in files)
        if sizes != self._event_sizes:
            self._event_sizes, self._events_changed_at = sizes, now
        quiet_s = now - max(self._events_changed_at, self.log.grew_at)
        if quiet_s < timeout_s:
            return None
        return Order("stalled: log and events unchanged for {:.0f} s".format(quiet_s), BACKOFF)

    def _check_exposed(self) -> Optional[Order]:
        now = time.monotonic()
        is_due = self._is_ready and now >= self._exposed_at + EXPOSED_CHECK_EVERY_S
        if self.launch.endpoint.network == OPEN or not is_due:
            return None
        self._exposed_at, last = now, self._exposed
        self._exposed = self._exposed_ports.find()
        if self._exposed != last:
            self._on_exposed(self._exposed)
        if self._exposed and self.launch.endpoint.network == STRICT:
            return Order(EXPOSED.format(self._exposed), FAILED)
        return None


def order_of_signal(caught: Optional[signal.struct_siginfo]) -> Optional[Order]:
    """Return the order that a signal stands for, if any."""
    return ORDERS.get(caught.si_signo) if caught else None


def _reap_orphans(leaders: Sequence[int]) -> None:
    """Reap processes that the task left behind, but none of those that are watched.

    They are children of the supervisor, and would stay zombies as long as it runs.
    """
    with suppress(ChildProcessError):  # none is left, or another thread has waited for it
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in leaders:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
