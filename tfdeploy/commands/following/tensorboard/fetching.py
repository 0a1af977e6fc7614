"""Fetch the events of one run in a thread, as its tasks write them."""

from __future__ import annotations

import math
import threading
import time
from bisect import insort
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

from tfdeploy.commands.following.tensorboard.copies import EventCopies, OddName
from tfdeploy.commands.watch import started_again
from tfdeploy.errors import (
    AgentError,
    Cancelled,
    HostError,
    RunError,
    TfdeployError,
    TransferFailed,
)
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.hosts.streams.following import HostIsBack, may_return
from tfdeploy.results.run_folder import disk_errors
from tfdeploy.shared.protocol.events import EventBatch, UnreadableEvents

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.events import EventPiece

LOCK = ".tensorboard"
LOCK_RETRY_S = 2.0
RECORD_S = 2.0  # how often the run's record is read
AFTER_START_S = (5.0, 15.0, 60.0)
DISK_RETRY_S = 10.0
MAX_UNREADABLE = 50
END_S = 5.0
UNKNOWN_VERB = "KeyError: 'follow_events'"


class Watcher(Protocol):
    """What is reported while events are shown, from any thread."""

    def print_events_away(self, error: TfdeployError) -> None: ...
    def print_host_back(self, host: str) -> None: ...
    def print_events_unreadable(self, host: str, found: UnreadableEvents) -> None: ...


class EventFetcher:
    """The events of a run, and the thread that fetches them; with `offline` it asks no host.

    What happens to hosts is reported once `reports` is true. `fetched_elsewhere`: another command
    fetches them; this one takes over when it ends. When the run was started again, `reload` gives
    its new plan.
    """

    def __init__(
        self, run: Run, watcher: Watcher, reload: Callable[[Run], Run], *, offline: bool
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
        self._live = set() if offline else set(run.plan.hosts)  # their tasks have not all ended
        self._refused: set[str] = set()  # for what they sent
        self._skipped: set[str] = set()  # until they are asked again
        self._ask_again_at = [math.inf]  # of time.monotonic(), ascending
        self._unreadable: set[tuple[str, str]] = set()
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
        self._skipped.clear()
        now = time.monotonic()
        self._ask_again_at = [due for due in self._ask_again_at if due > now]
        with (
            Fleet(self.run.inventory, version=self.run.agent, cancel=self._closed) as fleet,
            fleet.follow_events(self.run, self.copies.present) as following,
        ):
            while following.is_active and not self._must_ask_again():
                for host, event in following.events(time.monotonic() + RECORD_S):
                    self._handle(host, event, fleet)

    def _handle(self, host: str, event: Any, fleet: Fleet) -> None:
        if isinstance(event, HostIsBack):
            self._watcher.print_host_back(host)
        elif isinstance(event, EventBatch):
            self._take(host, event, fleet)
        else:
            self._fail(host, _explain(event))

    def _wait_for_start(self) -> None:
        while not self._must_ask_again() and not self._closed.wait(RECORD_S):
            pass

    def _must_ask_again(self) -> bool:
        """Return whether the run was started again, or it is time to try what failed before."""
        return time.monotonic() >= self._ask_again_at[0] or started_again(self.run)

    def _take(self, host: str, batch: EventBatch, fleet: Fleet) -> None:
        if host in self._refused | self._skipped:
            return
        try:
            with disk_errors(fleet.agents[host]):
                for piece in batch.pieces:
                    self._write(host, piece)
        except AgentError as error:
            self._fail(host, error)
            self._refused.add(host)
            return
        except TfdeployError as error:  # for example a full disk
            self._fail(host, error)
            if not self._skipped:
                insort(self._ask_again_at, time.monotonic() + DISK_RETRY_S)
            self._skipped.add(host)
            return
        for found in batch.unreadable:
            self._report_unreadable(host, found)
        with self._lock:
            if batch.pieces or batch.complete:
                self._errors.pop(host, None)
            if batch.last:
                self._live.discard(host)
        if batch.complete:
            self._has_looked(host)

    def _write(self, host: str, piece: EventPiece) -> None:
        try:
            self.copies.write(host, piece)
        except OddName as odd:
            found = UnreadableEvents(piece.task, piece.path, piece.begin, str(odd))
            self._report_unreadable(host, found)

    def _report_unreadable(self, host: str, found: UnreadableEvents) -> None:
        """Report each file once, and of many only the first ones."""
        known = self._unreadable
        if (found.task, found.path) not in known and len(known) < MAX_UNREADABLE:
            known.add((found.task, found.path))
            self._watcher.print_events_unreadable(host, found)

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


def _explain(error: TfdeployError) -> TfdeployError:
    """Return the error of a host; one that an agent without the verb gives says so."""
    if isinstance(error, AgentError) and UNKNOWN_VERB in error.message:
        return AgentError(
            error.host,
            "an older tfdeploy started this run, and its agent does not send events as they come",
            "tfdeploy collect fetches them; then tensorboard shows them",
        )
    return error


def shown_until(error: TfdeployError) -> str:
    """Return until when only what was fetched before is shown; "" if that does not end."""
    if isinstance(error, TransferFailed):
        return " until more can be written"
    return " until it answers" if isinstance(error, HostError) and may_return(error) else ""
