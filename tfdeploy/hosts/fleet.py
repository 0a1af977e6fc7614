"""Do the same on many hosts in parallel and keep every outcome: one bad host hides no other."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tfdeploy.errors import OutdatedRecord, TfdeployError, raise_all
from tfdeploy.hosts import parallel
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.hosts.cancellation import Cancellation
from tfdeploy.hosts.descriptors import max_connections
from tfdeploy.hosts.streams.following import Following
from tfdeploy.hosts.streams.subscriptions import HostSamples, NewEvents, RunEvents, StartedEvents
from tfdeploy.hosts.transports import has_daemon, make_transport
from tfdeploy.hosts.waiting import Waiting
from tfdeploy.shared.protocol.events import EventBatch, FollowEvents
from tfdeploy.shared.protocol.reports import Follow, RunEvent, SelectLines
from tfdeploy.shared.protocol.watching import HostSample, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.streams.answer_stream import AnswerStream
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

R = TypeVar("R")
# An unreachable host occupies a thread for its whole timeout. There are many more threads than
# cores, so that of a thousand hosts one in twenty may be unreachable without delaying the others.
THREADS = 128
MANY_HOSTS = 100  # from here on the usual limit of 1024 descriptors may be too low


class Fleet:
    """The agents of an inventory's hosts.

    Each host has one connection, opened at its first use. With more hosts than there can be
    connections, `stays_connected` is false, and a connection is closed after each use. With more
    hosts than threads, the connection daemon gets each agent back after each use: one that waits
    needs less memory. `transfers` has the progress of the files on their way to and from the hosts.
    With `record`, calls for several hosts raise OutdatedRecord if a host has a newer record of that
    run. If another thread sets `cancel`, these calls, and what follows a run, raise Cancelled soon;
    see `cancellation`.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        version: str | None = None,
        record: Run | None = None,
        accept_new: bool = False,
        transfers: Transfers | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self.inventory = inventory
        self.cancellation = Cancellation(cancel)
        self.transfers = transfers or Transfers()
        self.transfers.check = self.cancellation.check
        self.agents: Mapping[str, Agent] = {
            host.name: Agent(make_transport(host, inventory, accept_new), host, version, record)
            for host in inventory.hosts
        }
        for agent in self.agents.values():
            agent.transfers = self.transfers
        self._locks = {host: threading.Lock() for host in self.agents}
        count = len(self.agents)
        self.stays_connected = count <= MANY_HOSTS or count < max_connections()
        self._parks = count > THREADS and has_daemon(inventory, accept_new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.close()

    def outcomes(
        self,
        hosts: Iterable[str],
        act: Callable[[Agent], R],
        on_failed: Callable[[TfdeployError], None] = lambda error: None,
        on_wait: Callable[[Mapping[str, R | TfdeployError]], None] = lambda outcomes: None,
    ) -> dict[str, R | TfdeployError]:
        """Call `act` for every host in parallel; return what it returned, or the error it raised.

        `on_failed` is called with each error at once, from any thread. `on_wait` is called in the
        caller's thread with the outcomes so far when the other hosts take longer (see waiting.py).
        Ctrl-C, or `cancel`, skips the hosts that have not started, and waits only shortly for the
        others.
        """
        waiting = Waiting(on_wait)

        def act_on(host: str) -> R | TfdeployError:
            outcome = self._act_on(host, act)
            if isinstance(outcome, TfdeployError):
                on_failed(outcome)
            waiting.add(host, outcome)
            return outcome

        def check() -> None:
            self.cancellation.check()
            waiting.check()

        names = list(hosts)
        self.cancellation.check()
        outcomes = parallel.each(act_on, names, THREADS, check)
        self.cancellation.check()  # the calls may have ended because of it
        for outcome in outcomes:
            if isinstance(outcome, OutdatedRecord):  # the other hosts were asked wrongly, too
                raise outcome
        return dict(zip(names, outcomes, strict=True))

    def _act_on(self, host: str, act: Callable[[Agent], R]) -> R | TfdeployError:
        agent = self.agents[host]
        with self._locks[host]:  # a call that a Ctrl-C abandoned ends first
            try:
                return act(agent)
            except TfdeployError as error:
                return error
            finally:
                if not self.stays_connected:
                    agent.close()
                elif self._parks:
                    agent.park()

    def each(
        self,
        hosts: Iterable[str],
        act: Callable[[Agent], R],
        on_failed: Callable[[TfdeployError], None] = lambda error: None,
    ) -> dict[str, R]:
        """As `outcomes`, but raise all errors together when every host is done."""
        outcomes = self.outcomes(hosts, act, on_failed)
        raise_all(errors_of(outcomes))
        return {h: r for h, r in outcomes.items() if not isinstance(r, TfdeployError)}

    def follow(
        self,
        run: Run,
        placements: Iterable[Placement],
        *,
        logs: bool,
        lines: int | None = None,
        forever: bool = True,
        announce: bool = True,
    ) -> Following[RunEvent]:
        """Report what happens to these tasks until all of them have ended, or with `forever` false
        once.

        With `logs`, report what they write, after each log's last `lines` lines (None: all). With
        `announce`, the chief's host reports each new checkpoint and that there are new outputs.
        """
        chief = run.plan.chief
        subscriptions = {
            self.agents[host]: RunEvents(
                Follow(
                    run.inventory.project,
                    run.id,
                    tasks,
                    logs,
                    lines,
                    forever,
                    chief=str(chief.task) if announce and host == chief.host else "",
                )
            )
            for host, tasks in _tasks_by_host(placements).items()
        }
        return Following(subscriptions, self.cancellation)

    def follow_started(
        self, run: Run, streams: Mapping[str, AnswerStream[RunEvent]]
    ) -> Following[RunEvent]:
        """As `follow` without logs, over the streams of the requests that have started the tasks;
        a host without one is asked again."""
        project = run.inventory.project
        subscriptions = {
            self.agents[host]: StartedEvents(
                Follow(project, run.id, tasks, logs=False, lines=None, forever=True),
                streams.get(host),
            )
            for host, tasks in _tasks_by_host(run.plan.placements).items()
        }
        return Following(subscriptions, self.cancellation)

    def select_lines(
        self,
        run: Run,
        placements: Iterable[Placement],
        lines: int | None,
        grep: str,
        since: timedelta | datetime | None,
        *,
        forever: bool,
    ) -> Following[RunEvent]:
        """As `follow` with logs, but report only lines that `grep` matches and that were written
        since a time, or within a duration until now, by the host's clock."""
        project = run.inventory.project
        since_s = since.total_seconds() if isinstance(since, timedelta) else None
        since_at = since.timestamp() if isinstance(since, datetime) else None
        subscriptions = {
            self.agents[host]: RunEvents(
                SelectLines(project, run.id, tasks, lines, forever, grep, since_s, since_at)
            )
            for host, tasks in _tasks_by_host(placements).items()
        }
        return Following(subscriptions, self.cancellation)

    def watch(self, run: Run, lines: int) -> Following[HostSample]:
        """Sample every host of the run until all of its tasks have ended. The first sample has the
        last `lines` lines of each log."""
        chief = run.plan.chief
        subscriptions = {
            self.agents[host]: HostSamples(
                Watch(
                    run.inventory.project,
                    run.id,
                    tasks,
                    str(chief.task) if host == chief.host else "",
                    lines,
                )
            )
            for host, tasks in _tasks_by_host(run.plan.placements).items()
        }
        return Following(subscriptions, self.cancellation)

    def follow_events(
        self, run: Run, present: Callable[[Sequence[str]], list[tuple[str, str, int, str]]]
    ) -> Following[EventBatch]:
        """Report what the event files of all tasks gain until all tasks have ended. `present` is
        asked for the tasks of a host, before each connection: task, path, size and SHA-256 of each
        file that the controller has."""
        subscriptions = {
            self.agents[host]: NewEvents(
                FollowEvents(run.inventory.project, run.id, tasks, []), partial(present, tasks)
            )
            for host, tasks in _tasks_by_host(run.plan.placements).items()
        }
        return Following(subscriptions, self.cancellation)


def errors_of(outcomes: Mapping[str, object]) -> list[TfdeployError]:
    """Return the errors among outcomes."""
    return [outcome for outcome in outcomes.values() if isinstance(outcome, TfdeployError)]


def _tasks_by_host(placements: Iterable[Placement]) -> dict[str, list[str]]:
    tasks: dict[str, list[str]] = {}
    for placement in placements:
        tasks.setdefault(placement.host, []).append(str(placement.task))
    return tasks
