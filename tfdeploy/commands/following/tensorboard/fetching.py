"""Fetch the events of one run in a thread, as its tasks write them."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from tfdeploy.agent.protocol.events import EventBatch
from tfdeploy.commands.following.tensorboard.copies import EventCopies
from tfdeploy.errors import AgentError, Cancelled, HostError, RunError, TfdeployError
from tfdeploy.file_lock import locked
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.hosts.following import HostIsBack, may_return
from tfdeploy.transfer.run_folder import disk_errors

if TYPE_CHECKING:
    from tfdeploy.agent.protocol.events import UnreadableEvents
    from tfdeploy.run import Run

LOCK = ".tensorboard"
LOCK_RETRY_S = 2.0
END_S = 5.0
UNKNOWN_VERB = "KeyError: 'follow_events'"


class Watcher(Protocol):
    """What is reported while events are shown, from any thread."""

    def print_events_away(self, error: TfdeployError) -> None: ...
    def print_host_back(self, host: str) -> None: ...
    def print_events_unreadable(self, host: str, found: UnreadableEvents) -> None: ...


class EventFetcher:
    """The events of a run, and the thread that fetches them; with `offline` it asks no host.

    `errors` are those of the hosts that do not answer now; what happens to hosts is reported once
    `reports` is true. `fetched_elsewhere`: another command fetches them; this one takes over when
    it ends.
    """

    def __init__(self, run: Run, watcher: Watcher, *, offline: bool) -> None:
        self.run = run
        self.copies = EventCopies(run)
        self.errors: dict[str, TfdeployError] = {}
        self.reports = False
        self.fetched_elsewhere = False
        self.looked = threading.Event()  # at every host, or it gave an error
        self._watcher, self._offline = watcher, offline
        self._waiting = set(run.plan.hosts)
        self._live = set() if offline else set(run.plan.hosts)  # their tasks have not all ended
        self._refused: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(END_S)

    @property
    def is_live(self) -> bool:
        """Return whether a host that answers may still send events."""
        return bool(self._live - self.errors.keys())

    def _work(self) -> None:
        try:
            while not self._closed.is_set():
                with suppress(_Busy):
                    self._fetch_alone()
                    return
                self.fetched_elsewhere = True
                self.looked.set()
                self._closed.wait(LOCK_RETRY_S)
        except Cancelled:
            return
        except TfdeployError as error:
            self._fail("", error)
            self._live.clear()
        finally:
            self.looked.set()

    def _fetch_alone(self) -> None:
        """Fetch until the run has ended. Raises _Busy if another command does, and Cancelled."""
        with locked(self.run.folder / LOCK, _Busy(f"the events of {self.run.id} are fetched")):
            self.fetched_elsewhere = False
            try:
                self.copies.prepare()
            except OSError as error:
                message = f"{error.filename or self.copies.folder} can't be written"
                raise RunError(f"{message}: {error.strerror}") from None
            if not self._offline:
                self._fetch()

    def _fetch(self) -> None:
        with (
            Fleet(self.run.inventory, version=self.run.agent, cancel=self._closed) as fleet,
            fleet.follow_events(self.run, self.copies.present) as following,
        ):
            for host, event in following.events():
                if isinstance(event, HostIsBack):
                    self._watcher.print_host_back(host)
                elif isinstance(event, EventBatch):
                    self._take(host, event, fleet)
                else:
                    self._fail(host, _explain(event))

    def _take(self, host: str, batch: EventBatch, fleet: Fleet) -> None:
        if host in self._refused:
            return
        try:
            with disk_errors(fleet.agents[host]):
                for piece in batch.pieces:
                    self.copies.write(host, piece)
        except TfdeployError as error:
            self._fail(host, error)
            self._refused.add(host)
            return
        for found in batch.unreadable:
            self._watcher.print_events_unreadable(host, found)
        self.errors.pop(host, None)
        if batch.last:
            self._live.discard(host)
        if batch.complete:
            self._has_looked(host)

    def _fail(self, host: str, error: TfdeployError) -> None:
        self.errors[host] = error
        if self.reports and not self._closed.is_set():
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


def will_be_retried(error: TfdeployError) -> bool:
    """Return whether a host with this error is asked again."""
    return isinstance(error, HostError) and may_return(error)
