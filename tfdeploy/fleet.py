"""One thing on many hosts at once, every outcome kept: one bad host never hides another."""

from __future__ import annotations

import queue
import random
import resource
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tfdeploy import at_once
from tfdeploy.agent.records import TaskReport
from tfdeploy.errors import (
    AgentError,
    AuthenticationFailed,
    CommandFailed,
    HostKeyRefused,
    TfdeployError,
    raise_all,
)
from tfdeploy.remote import Agent, Followed
from tfdeploy.told import record, sound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.transport import Transport

R = TypeVar("R")
# A host that is gone holds a thread for its whole timeout: they are many more than could be busy,
# so that one in twenty of a thousand may be gone and the others don't notice.
AT_ONCE = 128
DESCRIPTORS = 1 << 16  # some programs that we begin close every number up to the limit
MANY = 100  # from so many hosts on, the usual limit of 1024 descriptors may not do
# A host that refuses what it is asked will refuse it again; any other may be back in a while.
REFUSALS = (AgentError, AuthenticationFailed, HostKeyRefused, CommandFailed)
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
LAST_WORD_S = 2.0
TURN_S = 30.0
UNREAD = 256  # events that may wait to be taken: then the hosts have to wait as well


class Fleet:
    """The agents of an inventory's hosts, each on one connection that opens at its first use. Where
    there are more hosts than there can be connections, `stays_connected` is false: each is closed
    after what is asked of its host."""

    def __init__(
        self, inventory: Inventory, *, version: str | None = None, accept_new: bool = False
    ) -> None:
        self.inventory = inventory
        self.agents: Mapping[str, Agent] = {
            host.name: Agent(_transport(host, inventory, accept_new), host, version)
            for host in inventory.hosts
        }
        self._turns = {host: threading.Lock() for host in self.agents}
        self.stays_connected = len(self.agents) <= MANY or len(self.agents) < _connections()

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
    ) -> dict[str, R | TfdeployError]:
        """Do `act` on every host at once; each gives what it returned, or the error it met, which
        `on_failed` is told at that moment, from any thread. Connections stay open for what is asked
        next, unless there are more hosts than there can be connections.

        Ctrl-C leaves out the hosts that have not been begun, and is not kept up by the others.
        """

        def one(host: str) -> R | TfdeployError:
            try:
                with self._turns[host]:  # what was left to itself at a Ctrl-C ends first
                    return act(self.agents[host])
            except TfdeployError as error:
                on_failed(error)
                return error
            finally:
                if not self.stays_connected:
                    self.agents[host].close()

        names = list(hosts)
        return dict(zip(names, at_once.each(one, names, AT_ONCE), strict=True))

    def each(
        self,
        hosts: Iterable[str],
        act: Callable[[Agent], R],
        on_failed: Callable[[TfdeployError], None] = lambda error: None,
    ) -> dict[str, R]:
        """As `outcomes`, but any error is raised, all of them together, when every host is done."""
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
    ) -> Following:
        """What happens to these tasks of a run, and with `logs` what they write: each log's last
        `lines` (None: all) and, with `forever`, whatever comes until all of them have ended. With
        `announce` the chief's host, if it is among theirs, names each new checkpoint."""
        common = {"project": run.inventory.project, "run": run.id, "logs": logs, "lines": lines}
        chief = run.plan.chief
        bodies: dict[str, dict[str, Any]] = {}
        for placement in placements:
            body: dict[str, Any] = {**common, "tasks": [], "forever": forever}
            bodies.setdefault(placement.host, body)["tasks"].append(str(placement.task))
        if announce and chief.host in bodies:  # an older agent doesn't know the word
            bodies[chief.host]["chief"] = str(chief.task)
        return Following({self.agents[host]: body for host, body in bodies.items()})


def errors_of(outcomes: Mapping[str, object]) -> list[TfdeployError]:
    return [outcome for outcome in outcomes.values() if isinstance(outcome, TfdeployError)]


def may_return(error: TfdeployError) -> bool:
    """Whether a host that gave this error is worth asking again."""
    return not isinstance(error, REFUSALS)


class Following:
    """The merged `follow` of many hosts. Leaving it ends all of them, from any thread.

    A host that is lost while it is followed for ever is asked again and again, and goes on where it
    was: no line is lost or told twice.
    """

    def __init__(self, bodies: Mapping[Agent, dict[str, Any]]) -> None:
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue(UNREAD)
        self._told: dict[str, Followed] = {}
        self._closed = threading.Event()
        self._open = len(bodies)
        self._beginning = threading.Semaphore(AT_ONCE)
        self._listeners = [
            threading.Thread(target=self._listen, args=(agent, body), daemon=True)
            for agent, body in bodies.items()
        ]
        for listener in self._listeners:
            listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(queue.Full):  # then nobody waits for an event
            self._events.put_nowait(("", None))
        for told in list(self._told.values()):
            told.enough()
        deadline = time.monotonic() + LAST_WORD_S  # then their agents can be asked something else
        for listener in self._listeners:
            listener.join(max(0.0, deadline - time.monotonic()))
        for told in list(self._told.values()):
            told.close()

    def events(self, deadline: float | None = None) -> Iterator[tuple[str, Any]]:
        """(host, answer) as they come, until all hosts have said their last, or until `deadline`
        (of time.monotonic). A host that is lost gives (host, its HostError); if `may_return(error)`
        and it is followed for ever, (host, {"back": True}) comes when it answers again.
        """
        while self._open and not self._closed.is_set():
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                host, event = self._events.get(timeout=left_s)
            except queue.Empty:
                return
            if event is None:
                self._open -= 1
            else:
                yield host, event

    def _listen(self, agent: Agent, body: dict[str, Any]) -> None:
        """Hear a host to its end; the first of several failures in a row is told."""
        failures, cursors = 0, dict[str, str]()
        try:
            while not self._closed.is_set():
                try:
                    for answer in self._answers(agent, body, cursors):
                        if failures:
                            self._put(agent.host, {"back": True})
                        failures = 0
                        self._put(agent.host, answer)
                    return
                except TfdeployError as error:
                    again = body["forever"] and may_return(error)
                    if failures == 0 or not again:
                        self._put(agent.host, error)
                    if not again:
                        return
                    failures += 1
                    self._closed.wait(_pause_s(failures))
        finally:
            self._put(agent.host, None)

    def _answers(
        self, agent: Agent, body: dict[str, Any], cursors: dict[str, str]
    ) -> Iterator[dict[str, Any]]:
        """One stream's answers; `cursors` say where it goes on, and learn where it stands."""
        told = agent.follow({**body, "cursors": cursors} if cursors else body)
        self._told[agent.host] = told
        if self._closed.is_set():
            told.enough()
        try:
            for answer in self._begun(told):
                _refuse_nonsense(agent.host, body, answer)
                if "cursor" in answer:
                    cursors[answer["task"]] = answer["cursor"]
                if answer.get("lines") != []:  # those only tell where the others begin
                    yield answer
        finally:
            told.close()

    def _begun(self, told: Followed) -> Iterator[dict[str, Any]]:
        """Its answers. So many hosts are connected to at the same time, and no more: else a
        thousand handshakes would make each other late."""
        answers = iter(told)
        in_turn = self._beginning.acquire(timeout=TURN_S)  # hosts that hang end nobody's waiting
        try:
            first = None if self._closed.is_set() else next(answers, None)
        finally:
            if in_turn:
                self._beginning.release()
        if first is not None:
            yield first
            yield from answers

    def _put(self, host: str, event: Any) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._events.put((host, event), timeout=1.0)
                return


def _pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row; hosts that were lost together must not all
    come back at the same moment."""
    return PAUSES_S[min(failures, len(PAUSES_S)) - 1] * random.uniform(0.75, 1.25)


def _refuse_nonsense(host: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
    """A host may lie; what it says about a task is only taken of the tasks that it has."""
    told = answer if "cursor" in answer else answer.get("state", answer)
    lines = answer.get("lines", [])
    whole = isinstance(lines, list) and all(isinstance(line, str) for line in lines)
    about = {"lines", "cursor", "state"} & answer.keys()
    known = isinstance(told, dict) and told.get("task") in body["tasks"]
    if about and not (whole and known):
        raise AgentError(host, "it tells of a task that it was not asked for")
    if "state" in answer:
        record(host, TaskReport, answer["state"])
    sound(host, lambda: str.encode(answer.get("cursor", "")))


def _connections() -> int:
    """How many may be open at the same time, once we are allowed as many descriptors as we may be:
    half of those are left to what is sent and fetched meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _transport(host: Host, inventory: Inventory, accept_new: bool) -> Transport:
    if host.is_local:
        from tfdeploy.transport.local import LocalTransport

        return LocalTransport(host.name)
    if inventory.keep_connections_s and not accept_new:
        from tfdeploy.transport.kept import KeptTransport

        return KeptTransport(host, inventory)
    from tfdeploy.transport.ssh import SshTransport

    return SshTransport(host, inventory, accept_new=accept_new)
