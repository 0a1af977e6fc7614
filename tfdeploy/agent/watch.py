"""One attempt at a task, from READY or not to its end; and why it was ended, if it was."""

from __future__ import annotations

import os
import signal
import time

from . import TYPE_CHECKING, health, process
from .fate import Order
from .records import BACKOFF

if TYPE_CHECKING:
    import subprocess
    from typing import Callable, List, Optional, Tuple

    from .log import Log
    from .records import Launch

WATCHED = (signal.SIGCHLD, signal.SIGTERM)
TICK_S = 0.25
FIRST_TICK_S = 0.02
PROBE_TIMEOUT_S = 3.0
LIVE_PROBE_S = 3.0
FROZEN_PROBES = 3
LOOK_EVERY_S = 5.0
# The controller waits as long as this for the first READY, and knows better what to say.
READY_MARGIN_S = 15.0
# A task without a port has shown that it works once it has lived so long.
SETTLED_S = 10.0
STOP = Order("as asked")


class Watch:
    """Waits for the end of one attempt, or for a reason to end it.

    `order` is asked at every tick what the run wants of the task; `on_ready` is called once it has
    answered on its port as itself, or, without a port, has lived for SETTLED_S.
    """

    def __init__(
        self,
        child: subprocess.Popen,  # type: ignore[type-arg]
        launch: Launch,
        task_dir: str,
        mark: str,
        log: Log,
        order: Callable[[], Optional[Order]],
        on_ready: Callable[[], None],
    ) -> None:
        self.child = child
        self.launch = launch
        self.mark = mark
        self.log = log
        self._task_dir = task_dir
        self._order = order
        self._on_ready = on_ready
        self._ready = False
        self._began = self._probed_at = self._moved_at = self._looked_at = time.monotonic()
        self._frozen: List[float] = []  # when each of the last probes began that found it so
        self._seen: List[Tuple[str, int]] = []

    def until_end(self) -> Optional[Order]:
        """None where the process ended by itself, else why it has to be ended: it lives still."""
        while True:
            caught = signal.sigtimedwait(WATCHED, self._tick_s())
            stopped = caught is not None and caught.si_signo == signal.SIGTERM
            if self.child.poll() is not None:
                if stopped:  # heard again where it matters: before the task is begun anew
                    os.kill(os.getpid(), signal.SIGTERM)
                return None
            _reap_strangers(self.child.pid)
            if stopped:
                return STOP
            order = self._order() or self._probed() or self._stalled()
            if order is not None:
                return order

    def _tick_s(self) -> float:
        """One that opens its port at once is seen at once; one that loads for long isn't asked all
        the time."""
        if self._ready:
            return TICK_S
        return min(TICK_S, FIRST_TICK_S + (time.monotonic() - self._began) / 8)

    def _probed(self) -> Optional[Order]:
        now = time.monotonic()
        if self.launch.asked_port is None:
            self._settle(now)
            return None
        if self._ready and now < self._probed_at + LIVE_PROBE_S:
            return None
        gap_s, self._probed_at = now - self._probed_at, now
        return self._judged(health.of(self.launch, PROBE_TIMEOUT_S), now, gap_s)

    def _settle(self, now: float) -> None:
        if not self._ready and now > self._began + SETTLED_S:
            self._be_ready()

    def _judged(self, verdict: str, now: float, gap_s: float) -> Optional[Order]:
        if not self._ready:
            return self._not_yet(verdict, now)
        if verdict != health.FROZEN or gap_s > LIVE_PROBE_S * FROZEN_PROBES:
            self._frozen = []  # after such a gap it was the machine that slept
        else:
            self._frozen.append(now)
        return self._frozen_order()

    def _not_yet(self, verdict: str, now: float) -> Optional[Order]:
        port = self.launch.asked_port
        ours = verdict == health.READY and port is not None and self._is_ours(port)
        if ours:
            self._be_ready()
        elif now - self._began > self.launch.ready_timeout_s + READY_MARGIN_S:
            return Order("not READY within {:g} s".format(self.launch.ready_timeout_s), BACKOFF)
        return None

    def _be_ready(self) -> None:
        self._ready = True
        self._on_ready()

    def _is_ours(self, port: int) -> bool:
        """It is our own process that answers: not a stale twin of the same name."""
        return process.holder(port) in process.members(self.mark, self.child.pid)

    def _frozen_order(self) -> Optional[Order]:
        if len(self._frozen) < FROZEN_PROBES:
            return None
        frozen_s = time.monotonic() - self._frozen[0]
        if frozen_s < self.launch.policy.frozen_timeout_s:
            return None
        return Order("FROZEN: no answer on its port for {:.0f} s".format(frozen_s), BACKOFF)

    def _stalled(self) -> Optional[Order]:
        limit_s, now = self.launch.policy.stall_timeout_s, time.monotonic()
        if limit_s is None or not self._ready or now < self._looked_at + LOOK_EVERY_S:
            return None
        self._looked_at = now
        from . import event_files  # only a task with a stall_timeout_s comes here

        files = event_files.of(self._task_dir, self.launch.checkpoint_dir)
        events = sorted((file.whole_path, file.size) for file in files)
        if events != self._seen:
            self._seen, self._moved_at = events, now
        quiet_s = now - max(self._moved_at, self.log.grew_at)
        if quiet_s < limit_s:
            return None
        return Order("stalled: log and events unchanged for {:.0f} s".format(quiet_s), BACKOFF)


def _reap_strangers(child: int) -> None:
    """What the task left behind became ours; without this it would stay a zombie as long as we."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == child:
            return
        os.waitpid(found.si_pid, os.WNOHANG)
