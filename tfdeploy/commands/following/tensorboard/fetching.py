"""Fetch the events of one run in a thread, as its tasks write them."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from tfdeploy.commands.following.tensorboard.copies import EventCopies
from tfdeploy.commands.watch import started_again
from tfdeploy.errors import Cancelled, HostError, RunError, TfdeployError, TransferFailed
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

LOCK = ".tensorboard"
LOCK_RETRY_S = 2.0
RECORD_S = 2.0  # how often the run's record is read
AFTER_START_S = (5.0, 15.0, 60.0)
END_S = 5.0


class BoardWatcher(Protocol):
    """What is reported while events are shown, from any thread."""

    def print_events_away(self, error: TfdeployError) -> None: ...
    def print_host_back(self, host: str) -> None: ...


class EventFetcher(Listener):
    """The events of a run, and the thread that fetches them; with `offline` it asks no host.

    What happens to hosts is reported once `reports` is true. `fetched_elsewhere`: another command
    fetches them; this one takes over when it ends. When the run was started again, `reload` gives
    its new plan.
    """

    def __init__(
        self, run: Run, watcher: BoardWatcher, reload: Callable[[Run], Run], *, offline: bool
    ) -> None:
        self.run = run
        self.copies = EventCopies(run)
        self.reports = False
        self.fetched_elsewhere = False
        self.looked = threading.Event()  # at every host, or it gave an error
        self._watcher, self._reload, self._offline = watcher, reload, offline
        self._lock = threading.Lock()
        self._errors: dict[str, TfdeployError] = {}
        self._waiting = set(run.plan.hosts)
        self._active: set[str] = set()  # tasks that have not ended
        self._live = set() if offline else set(run.plan.hosts)  # their tasks have not all ended
        self._ask_again_at = [math.inf]  # of time.monotonic(), ascending
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._thread.join(END_S)

    def end(self) -> None:
        """Make the thread end; leaving the context waits for it."""
        self._closed.set()

    @property
    def errors(self) -> dict[str, TfdeployError]:
        """Return the errors of the hosts that do not answer now, or whose events are refused."""
        with self._lock:
            return dict(self._errors)

    @property
    def is_live(self) -> bool:
        """Return whether a host that answers may still send events."""
        with self._lock:
            return bool(self._live - self._errors.keys())

    def _work(self) -> None:
        try:
            while not self._closed.is_set():
                with suppress(_Busy):
                    self._fetch_alone()
                    if self._offline:
                        return
                    self.looked.set()
                    self._wait_for_start()
                    continue
                self.fetched_elsewhere = True
                self.looked.set()
                self._closed.wait(LOCK_RETRY_S)
        except Cancelled:
            return
        except TfdeployError as error:
            self._fail("", error)
            with self._lock:
                self._live.clear()
        finally:
            self.looked.set()

    def _fetch_alone(self) -> None:
        """Fetch until all tasks have ended, or the hosts must be asked again. Raises _Busy if
        another command does, and Cancelled."""
        busy = _Busy(f"the events of {self.run.id} are fetched")
        with self.run.open().locked(LOCK, busy):
            self.fetched_elsewhere = False
            try:
                self._follow_record()
                self.copies.prepare()
            except OSError as error:
                message = f"{error.filename or self.copies.folder} can't be used"
                raise RunError(f"{message}: {error.strerror}") from None
            if not self._offline:
                self._fetch()

    def _follow_record(self) -> None:
        """Take the plan of the run's last start."""
        if not started_again(self.run):
            return
        self.run = self._reload(self.run)
        self.copies.follow(self.run)
        hosts = set(self.run.plan.hosts)
        with self._lock:
            self._live = hosts
            self._errors = {host: e for host, e in self._errors.items() if host in hosts}
        # Until its tasks are started, a host reports that those of the start before have ended.
        self._ask_again_at = [*(time.monotonic() + s for s in AFTER_START_S), math.inf]

    def _fetch(self) -> None:
        now = time.monotonic()
        self._ask_again_at = [due for due in self._ask_again_at if due > now]
        self._active = {str(placement.task) for placement in self.run.plan.placements}
        placements, update = self.run.plan.placements, self.copies.update
        with (
            Fleet(self.run.inventory, version=self.run.agent, cancel=self._closed) as fleet,
            fleet.follow(self.run, placements, chief="", events=True, on_event=update) as following,
        ):
            while following.is_active and not self._must_ask_again():
                for host, event in following.events(time.monotonic() + RECORD_S):
                    self.dispatch(host, event)
            if not following.is_active:
                with self._lock:
                    self._live.clear()

    def on_error(self, error: HostError) -> None:
        self._fail(error.host, error)

    def on_back(self, host: str) -> None:
        with self._lock:
            self._errors.pop(host, None)
        self._watcher.print_host_back(host)

    def on_state(self, host: str, report: TaskReport) -> None:
        """Take a state; it comes after what the task has written."""
        if report.state in ENDED:
            self._active.discard(report.task)
            with self._lock:
                if not any(str(p.task) in self._active for p in self.run.plan.placements_on(host)):
                    self._live.discard(host)
        self._has_looked(host)

    def _wait_for_start(self) -> None:
        while not self._must_ask_again() and not self._closed.wait(RECORD_S):
            pass

    def _must_ask_again(self) -> bool:
        """Return whether the run was started again, or it is time to try what failed before."""
        return time.monotonic() >= self._ask_again_at[0] or started_again(self.run)

    def _fail(self, host: str, error: TfdeployError) -> None:
        with self._lock:
            before = self._errors.get(host)
            self._errors[host] = error
        if self.reports and not self._closed.is_set() and type(before) is not type(error):
            self._watcher.print_events_away(error)
        self._has_looked(host)

    def _has_looked(self, host: str) -> None:
        self._waiting.discard(host)
        if not self._waiting:
            self.looked.set()


class _Busy(RunError):
    """Another command fetches the events of this run."""


def shown_until(error: TfdeployError) -> str:
    """Return until when only what was fetched before is shown; "" if that does not end."""
    if isinstance(error, TransferFailed):
        return " until more can be written"
    return " until it answers" if may_return(error) else ""
