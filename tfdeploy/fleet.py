"""One thing on many hosts at once, every outcome kept: one bad host never hides another."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tfdeploy.errors import TfdeployError, raise_all
from tfdeploy.remote import Agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.transport import Transport

R = TypeVar("R")
AT_ONCE = 32


class Fleet:
    """The agents of an inventory's hosts, each on one connection that opens at its first use."""

    def __init__(
        self, inventory: Inventory, *, version: str | None = None, accept_new: bool = False
    ) -> None:
        self.agents: Mapping[str, Agent] = {
            host.name: Agent(_transport(host, inventory, accept_new), host, version)
            for host in inventory.hosts
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.transport.close()

    def outcomes(
        self, hosts: Iterable[str], act: Callable[[Agent], R]
    ) -> dict[str, R | TfdeployError]:
        """Do `act` on every host at once; each gives what it returned, or the error it met."""

        def one(host: str) -> R | TfdeployError:
            try:
                return act(self.agents[host])
            except TfdeployError as error:
                return error

        names = list(hosts)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return dict(zip(names, pool.map(one, names), strict=True))

    def each(self, hosts: Iterable[str], act: Callable[[Agent], R]) -> dict[str, R]:
        """As `outcomes`, but any error is raised, all of them together, when every host is done."""
        outcomes = self.outcomes(hosts, act)
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
    ) -> Following:
        """What happens to these tasks of a run, and with `logs` what they write: each log's last
        `lines` (None: all) and, with `forever`, whatever comes until all of them have ended."""
        asked = {"project": run.inventory.project, "run": run.id}
        bodies: dict[Agent, dict[str, Any]] = {}
        for placement in placements:
            body: dict[str, Any] = {
                **asked,
                "tasks": [],
                "logs": logs,
                "lines": lines,
                "forever": forever,
            }
            agent = self.agents[placement.host]
            bodies.setdefault(agent, body)["tasks"].append(str(placement.task))
        return Following(bodies)


def errors_of(outcomes: Mapping[str, object]) -> list[TfdeployError]:
    return [outcome for outcome in outcomes.values() if isinstance(outcome, TfdeployError)]


class Following:
    """The merged `follow` of many hosts. Closing it hangs up on all of them, from any thread."""

    def __init__(self, bodies: Mapping[Agent, dict[str, Any]]) -> None:
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._streams: list[Any] = []
        self._closed = threading.Event()
        self._open = len(bodies)
        for agent, body in bodies.items():
            threading.Thread(target=self._read, args=(agent, body), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for stream in list(self._streams):
            stream.close()

    def events(self, deadline: float | None = None) -> Iterator[tuple[str, Any]]:
        """(host, answer) as they come, until all hosts have said their last, or until `deadline`
        (of time.monotonic). A host that is lost gives (host, its HostError) and is heard no more.
        """
        while self._open:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                host, event = self._events.get(timeout=left_s)
            except queue.Empty:
                return
            if event is None:
                self._open -= 1
            else:
                yield host, event

    def _read(self, agent: Agent, body: dict[str, Any]) -> None:
        try:
            stream, answers = agent.follow(body)
            self._streams.append(stream)
            if self._closed.is_set():
                stream.close()
            for answer in answers:
                self._events.put((agent.host, answer))
        except TfdeployError as error:
            self._events.put((agent.host, error))
        finally:
            self._events.put((agent.host, None))


def _transport(host: Host, inventory: Inventory, accept_new: bool) -> Transport:
    if host.is_local:
        from tfdeploy.transport.local import LocalTransport

        return LocalTransport(host.name)
    from tfdeploy.transport.ssh import SshTransport

    return SshTransport(host, inventory, accept_new=accept_new)
