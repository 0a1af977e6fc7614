"""Hosts that share a directory: with `shared_fs` one receives and builds, and the others see the
same files. Hosts that share one unknowingly are refused: each would take the other's tasks for its
own.

That hosts share, or do not, is tried before anything is sent; what one of them has received or
built is verified on each of the others, through its own mount.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tfdeploy.errors import AgentError, TfdeployError, TransferFailed, raise_all
from tfdeploy.hosts.fleet import errors_of
from tfdeploy.shared.protocol.environments import EnvironmentSeen, SeeEnvironment
from tfdeploy.shared.protocol.releases import Mark, Rename, SeeRelease, Unmark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet

    Groups = Mapping[str, Sequence[str]]

MARK_TIMEOUT_S = 10.0  # the agent reads or writes one small file
VISIBLE_TIMEOUT_S = 240.0  # the agent waits for up to 90 s until it sees what another host wrote
OWN_DIRECTORY = "give the host a directory of its own, and shared_fs = false"


def group_by_store(inventory: Inventory, hosts: Iterable[str]) -> dict[str, list[str]]:
    """Return the hosts that receive and build, each with the others that share its store. Pure.

    The first host of hosts.toml receives, so that all controllers choose the same one.
    """
    wanted, by_store = {*hosts}, dict[str, list[str]]()
    for host in inventory.hosts:
        if host.name in wanted:
            by_store.setdefault(host.store if host.shared_fs else f"{host.name}:", []).append(
                host.name
            )
    return {names[0]: names[1:] for names in by_store.values()}


def errors_of_sharing(fleet: Fleet, groups: Groups) -> list[TfdeployError]:
    """Return an error for each host that does not share its store as hosts.toml says.

    The receiver of each group makes a mark, which then no other host can make.
    """
    groups = {receiver: others for receiver, others in groups.items() if others}
    receivers = {host: receiver for receiver, others in groups.items() for host in others}
    word = secrets.token_hex(8)

    def mark(agent: Agent) -> str:
        return agent.ask(Mark(word, agent.host), MARK_TIMEOUT_S).by

    def unmark(agent: Agent) -> None:
        agent.ask(Unmark(word), MARK_TIMEOUT_S)

    try:
        first = fleet.outcomes(groups, mark)
        tried = [host for host in receivers if not isinstance(first[receivers[host]], Exception)]
        second = fleet.outcomes(tried, mark)
    finally:
        with fleet.cancellation.delayed():
            fleet.outcomes((*groups, *receivers), unmark)
    not_shared = [
        _not_shared(fleet.agents[host], receivers[host])
        for host, by in second.items()
        if by == host
    ]
    return [*errors_of(first), *errors_of(second), *not_shared]


def refuse_unshared(fleet: Fleet, groups: Groups) -> None:
    """Raise the errors of all hosts that do not share their store as hosts.toml says."""
    if any(groups.values()):
        raise_all(errors_of_sharing(fleet, groups))


def verify_release(fleet: Fleet, project: str, release: str, groups: Groups) -> None:
    """Have each host that shares a store read the manifest of a release that its receiver has.

    Raises the errors of all hosts that do not see the same.
    """

    def see(agent: Agent, digest: str) -> str:
        request = SeeRelease(project, release, digest)
        return agent.ask(request, VISIBLE_TIMEOUT_S if digest else MARK_TIMEOUT_S).digest

    expected = fleet.each((r for r in groups if groups[r]), lambda agent: see(agent, ""))
    receivers = {host: receiver for receiver in expected for host in groups[receiver]}

    def verify(agent: Agent) -> None:
        receiver = receivers[agent.host]
        if not expected[receiver] or see(agent, expected[receiver]) != expected[receiver]:
            raise TransferFailed(
                agent.host,
                f"it does not see release {release}, which {receiver} has received: {agent.store}",
                "push again when the file system is mounted on both; or " + OWN_DIRECTORY,
            )

    fleet.each(receivers, verify)


def verify_environments(
    fleet: Fleet, project: str, groups: Groups, environments: Mapping[str, str]
) -> None:
    """Have each host that shares a store run the Python of its environment, which another host
    has built; `environments` are ids by host.

    Raises the errors of all hosts that do not see the same, can't run it, or have another platform.
    """

    def see(agent: Agent, digest: str) -> EnvironmentSeen:
        request = SeeEnvironment(project, environments[agent.host], digest)
        return agent.ask(request, VISIBLE_TIMEOUT_S)

    expected = fleet.each((r for r in groups if groups[r]), lambda agent: see(agent, ""))
    receivers = {host: receiver for receiver in expected for host in groups[receiver]}

    def verify(agent: Agent) -> None:
        receiver = receivers[agent.host]
        built, seen = expected[receiver], see(agent, expected[receiver].digest)
        if seen != built:
            what = f"can't use the environment that {receiver} has built: "
            raise AgentError(agent.host, what + _difference(built, seen), OWN_DIRECTORY)

    fleet.each(receivers, verify)


def _difference(built: EnvironmentSeen, seen: EnvironmentSeen) -> str:
    """Return why an environment is not the same on another host. Pure."""
    if not built.digest or seen.digest != built.digest:
        return "it does not see it"
    if (seen.machine, seen.libc) != (built.machine, built.libc):
        found, expected = (f"{each.machine}, {each.libc or 'no glibc'}" for each in (seen, built))
        return f"it is for {expected}, and this host has {found}"
    if seen.why:
        return f"its Python does not run: {seen.why}"
    return f"its Python is {seen.python or 'none'}, expected {built.python or 'one that runs'}"


def _not_shared(agent: Agent, receiver: str) -> TransferFailed:
    return TransferFailed(
        agent.host,
        f"hosts.toml says shared_fs = true, but it does not see what {receiver} writes to "
        f"{agent.store}",
        f"mount the same file system on both, or {OWN_DIRECTORY}",
    )


class DirectoryClaims:
    """Which host owns which directory, by the id that the directory itself has.

    Two directories with the same id are one, or one is a copy of the other. So both hosts create
    the same mark, which only one of them can do in a shared directory. On exit the marks are
    removed.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._owners: dict[str, Agent] = {}
        self._marked: list[Agent] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._marked:
            with suppress(TfdeployError):
                agent.ask(Unmark(self._mark), MARK_TIMEOUT_S)

    def claim(self, agent: Agent, directory_id: str) -> None:
        """Record that the host owns this directory.

        Raises TransferFailed if another host has the same directory. A copy of it, for example on
        machines that were cloned from one image, gets a new id. Raises HostError if the host does
        not answer.
        """
        with self._lock:
            owner = self._owners.setdefault(directory_id, agent)
            if owner is agent:
                return
            with suppress(TfdeployError):  # if the host is gone, its own error is reported
                self._first_marked_by(owner)
            first = self._first_marked_by(agent)
            if first == agent.host:
                new_id = agent.ask(Rename(), MARK_TIMEOUT_S).here
                self._owners[new_id] = agent
                return
        raise TransferFailed(
            agent.host,
            f"its directory {agent.store} is also the directory of {first}: "
            "they share a file system",
            "write shared_fs = true under [defaults]; or give each host its own directory: "
            f'directory = "{agent.store}/{{host}}" (a local disk is faster); '
            "if both names are one machine, list it once",
        )

    def _first_marked_by(self, agent: Agent) -> str:
        """Create the mark in the host's directory; return the host that created it first."""
        if agent not in self._marked:
            self._marked.append(agent)
        return agent.ask(Mark(self._mark, agent.host), MARK_TIMEOUT_S).by
