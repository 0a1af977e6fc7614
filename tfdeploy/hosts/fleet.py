"""Do the same on many hosts in parallel and keep every outcome: one bad host hides no other."""

from __future__ import annotations

import resource
import threading
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeVar

from tfdeploy.errors import OutdatedRecord, RunDeleted, TfdeployError, raise_all
from tfdeploy.hosts import parallel
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.hosts.following import Following, Subscription
from tfdeploy.hosts.parallel import Cancellation, Waiting
from tfdeploy.hosts.transports import has_daemon, make_transport
from tfdeploy.planning.plan import tasks_by_host
from tfdeploy.shared.protocol.reports import Follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import AnswerStream
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent

R = TypeVar("R")
NO_STREAMS: Mapping[str, AnswerStream[RunEvent]] = MappingProxyType({})
# An unreachable host occupies a thread for its whole timeout. There are many more threads than
# cores, so that of a thousand hosts one in twenty may be unreachable without delaying the others.
THREADS = 128
MAX_DESCRIPTORS = 1 << 16  # some child processes close every descriptor up to the limit
MANY_HOSTS = 100  # from here on the usual limit of 1024 descriptors may be too low


class Fleet:
    """The agents of an inventory's hosts.

    Each host has one connection, opened at its first use. With more hosts than threads, the
    connection daemon gets each agent back after each use: one that waits needs less memory.
    `transfers` has the progress of the files on their way to and from the hosts.
    With `record`, calls for several hosts raise OutdatedRecord if a host has a newer record of that
    run, unless the run says that the host is `doubted`. If another thread sets `cancel`, these
    calls, and what follows a run, raise Cancelled soon; see Cancellation.
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
        self.inventory, self.record = inventory, record
        self.cancellation = Cancellation(cancel)
        self.transfers = transfers or Transfers()
        self.transfers.check = self.cancellation.check
        doubted = record.doubted if record else ()
        self.agents: Mapping[str, Agent] = {
            host.name: Agent(
                make_transport(host, inventory, accept_new),
                host,
                version,
                None if host.name in doubted else record,
            )
            for host in inventory.hosts
        }
        for agent in self.agents.values():
            agent.transfers = self.transfers
        self._locks = {host: threading.Lock() for host in self.agents}
        if len(self.agents) > MANY_HOSTS:
            raise_descriptor_limit()
        self._parks = len(self.agents) > THREADS and has_daemon(inventory, accept_new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.close()

    def outcomes(
        self,
        hosts: Iterable[str],
        act: Callable[[Agent], R],
        on_wait: Callable[[Mapping[str, R | TfdeployError]], None] | None = None,
    ) -> dict[str, R | TfdeployError]:
        """Call `act` for every host in parallel; return what it returned, or the error it raised.

        `on_wait` is called in the caller's thread with the outcomes so far when other hosts take
        longer (see Waiting). Ctrl-C, or `cancel`, skips the hosts that have not started, and waits
        only shortly for the others.
        """
        names = list(hosts)
        waiting = Waiting(names, on_wait)

        def act_on(host: str) -> R | TfdeployError:
            agent = self.agents[host]
            outcome: R | TfdeployError
            with self._locks[host]:  # a call that a Ctrl-C abandoned ends first
                try:
                    outcome = act(agent)
                except TfdeployError as error:
                    outcome = error
                finally:
                    if self._parks:
                        agent.park()
            waiting.add(host, outcome)
            return outcome

        def check() -> None:
            self.cancellation.check()
            waiting.check()

        self.cancellation.check()
        outcomes = parallel.call_each(act_on, names, THREADS, check)
        self.cancellation.check()  # the calls may have ended because of it
        for outcome in outcomes:
            if isinstance(outcome, OutdatedRecord):  # the other hosts were asked wrongly, too
                raise outcome
        return dict(zip(names, outcomes, strict=True))

    def each(self, hosts: Iterable[str], act: Callable[[Agent], R]) -> dict[str, R]:
        """As `outcomes`, but raise all errors together when every host is done."""
        outcomes = self.outcomes(hosts, act)
        raise_all(errors_of(outcomes))
        return answers_of(outcomes)

    def follow(
        self,
        run: Run,
        placements: Iterable[Placement],
        *,
        logs: bool = False,
        lines: int | None = None,
        grep: str = "",
        samples: bool = False,
        forever: bool = True,
        announced: bool = True,
        opened: Mapping[str, AnswerStream[RunEvent]] = NO_STREAMS,
    ) -> Following:
        """Report what happens to these tasks until all of them have ended, or with `forever` false
        once.

        `logs`, `lines`, `grep` and `samples` are as in Follow. If it is `announced`, the chief's
        host reports new checkpoints and outputs. `opened` are streams of hosts whose tasks were
        just started.
        """
        project, chief = run.inventory.project, run.plan.chief
        # Which trial is best, and so which files are fetched, is known at the end of a run.
        announced = announced and not run.inventory.trials.points
        subscriptions = {}
        for host, tasks in tasks_by_host(placements).items():
            announcer = str(chief.task) if announced and host == chief.host else ""
            request = Follow(
                project, run.id, tasks, logs, lines, forever, None, announcer, grep, samples
            )
            subscriptions[self.agents[host]] = Subscription(request, opened.get(host))
        return Following(subscriptions, self.cancellation)


def answers_of(outcomes: Mapping[str, R | TfdeployError]) -> dict[str, R]:
    """Return what hosts have answered, without the errors of the others."""
    return {h: each for h, each in outcomes.items() if not isinstance(each, TfdeployError)}


def errors_of(outcomes: Mapping[str, object]) -> list[TfdeployError]:
    """Return the errors among outcomes."""
    return [outcome for outcome in outcomes.values() if isinstance(outcome, TfdeployError)]


def unless_deleted(outcomes: Mapping[str, R]) -> Mapping[str, R]:
    """Return the outcomes, or raise RunDeleted once if a run was deleted from each of the hosts."""
    deleted = [each for each in outcomes.values() if isinstance(each, RunDeleted)]
    if deleted and len(deleted) == len(outcomes):
        deleted[0].names = ()
        raise deleted[0]
    return outcomes


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
