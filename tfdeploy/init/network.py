"""Find ports that are free, and the addresses at which the hosts really reach one another."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.hosts.fleet import answers_of
from tfdeploy.init.machine import AUTO
from tfdeploy.planning.placing import is_loopback
from tfdeploy.shared.protocol.preflight import Address, ListenOnPorts, TryPorts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet

OPEN_S = 20.0
CONNECT_S = 3.0
MAX_ADDRESSES = 6  # that are tried of a host
TRIED_BY = 16  # hosts connect to each host, so that the number of connections is bounded
RANGES = (2222, 2322, 2422, 3222, 12222)  # their first ports
RANGE_LENGTH = 78
ANY = 0  # instead of a first port: any free ports, as a start chooses them for "auto"

# A host and one of its addresses; and why it is not reached there, by the host that tried.
Endpoint = tuple[str, str]
Failures = dict[Endpoint, dict[str, str]]


@dataclass(frozen=True)
class HostNetwork:
    """The `ports` of a host's tasks, and its `address` for the other hosts, None for the default.
    `problem` says which hosts do not reach it, "" if all do."""

    ports: str = AUTO
    address: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class FirstPorts:
    """The ports that a host has opened, and the value of `ports` for them. They stay open as long
    as `stream` is."""

    stream: object
    value: str
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Addresses:
    """The addresses of a host: the default is that which SSH uses; `others` are the name that the
    user typed, and the addresses of its interfaces."""

    default: str
    others: Sequence[str]

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys((self.default, *self.others)))


def find_network(
    fleet: Fleet, addresses: Mapping[str, Addresses], counts: Mapping[str, int]
) -> dict[str, HostNetwork]:
    """Have each host open the number of ports in `counts`, and the others connect to them.

    Return the ports and the address of each host that answers. If others do not reach free ports of
    a host, as behind a firewall, it gets a fixed range, which they may reach, or which somebody can
    open for them.
    """
    found = _find_network(fleet, addresses, counts, (ANY,))
    blocked = [host for host, each in found.items() if each.problem]
    fixed = _find_network(fleet, addresses, counts, RANGES) if blocked else {}
    return found | {host: fixed[host] for host in blocked if host in fixed}


def _find_network(
    fleet: Fleet,
    addresses: Mapping[str, Addresses],
    counts: Mapping[str, int],
    ranges: Sequence[int],
) -> dict[str, HostNetwork]:
    with ExitStack() as streams:
        outcomes = fleet.outcomes(
            counts, lambda agent: _open_ports(agent, counts[agent.host], ranges, streams)
        )
        opened = answers_of(outcomes)
        ports = {host: each.ports for host, each in opened.items()}
        chosen = _choose_addresses(fleet, {host: addresses[host] for host in opened}, ports)
    return {
        host: HostNetwork(opened[host].value, address, problem)
        for host, (address, problem) in chosen.items()
    }


def _open_ports(agent: Agent, count: int, ranges: Sequence[int], streams: ExitStack) -> FirstPorts:
    """Have a host open its ports: those of the first range in which they are free. They stay open
    until `streams` is closed."""
    for first in ranges:
        wanted = {f"port {n}": first and first + n for n in range(count)}
        answers = agent.stream(ListenOnPorts(wanted), OPEN_S)
        stream = iter(answers)  # the host closes the ports when this is deleted
        opened = next(stream)
        if not opened.taken:
            streams.callback(answers.close)
            span = f"{first}-{first + RANGE_LENGTH - 1}" if first else AUTO
            return FirstPorts(stream, span, tuple(opened.open.values()))
        answers.close()
    raise AgentError(agent.host, "it has no free ports")


def _choose_addresses(
    fleet: Fleet, addresses: Mapping[str, Addresses], ports: Mapping[str, Sequence[int]]
) -> dict[str, tuple[str | None, str]]:
    """Return the address of each host, None if the default is reached, and who does not reach it.

    The other addresses are tried only if the default one fails.
    """
    usable = usable_addresses(addresses, ports)
    defaults = {h: [a.default] for h, a in addresses.items() if a.default in usable[h]}
    failures = _try(fleet, defaults, ports)
    rest = {
        host: [each for each in usable[host] if each != addresses[host].default]
        for host in addresses
        if host not in defaults or failures[host, addresses[host].default]
    }
    failures |= _try(fleet, rest, ports)
    return {
        host: choose_address(host, each, usable[host], failures) for host, each in addresses.items()
    }


def usable_addresses(
    addresses: Mapping[str, Addresses], ports: Mapping[str, Sequence[int]]
) -> dict[str, list[str]]:
    """Return the addresses that mean one host only. Pure.

    Loopback, and the address of Docker's bridge that every host has, would lead a host to itself.
    """
    alone = len(addresses) == 1
    claimed = Counter((a, p) for h, each in addresses.items() for a in each.all for p in ports[h])
    return {
        host: [
            address
            for address in each.all
            if (alone or not is_loopback(address))
            and all(claimed[address, port] == 1 for port in ports[host])
        ][:MAX_ADDRESSES]
        for host, each in addresses.items()
    }


def choose_address(
    host: str, addresses: Addresses, usable: Sequence[str], failures: Failures
) -> tuple[str | None, str]:
    """Return the first address that all others reach, else the one that most reach; None for the
    default. And a sentence about those that do not reach it. Pure."""
    tried = [address for address in usable if (host, address) in failures]
    if not tried:
        return None, f"no address is known to lead to it alone: {fold_names(addresses.all)}"
    best = min(tried, key=lambda address: len(failures[host, address]))
    missed = failures[host, best]
    problem = ""
    if missed:
        names, why = fold_names(missed), next(iter(missed.values()))
        problem = f"{names} can't reach it at {fold_names(tried)}: {why}"
    return None if best == addresses.default else best, problem


def _try(
    fleet: Fleet, wanted: Mapping[str, Sequence[str]], ports: Mapping[str, Sequence[int]]
) -> Failures:
    """Have hosts connect to each address of the wanted hosts, on all of its ports."""
    failures: Failures = {(host, a): {} for host, of_host in wanted.items() for a in of_host}
    by_host = {host: [*targets_of(host, [*ports], wanted)] for host in ports}

    def try_ports(agent: Agent) -> list[str]:
        at = [Address(a, port) for host, a in by_host[agent.host] for port in ports[host]]
        return agent.ask(TryPorts(at, CONNECT_S)).answers if at else []

    for host, answers in answers_of(fleet.outcomes(ports, try_ports)).items():
        reasons = iter(answers)
        for target, address in by_host[host]:
            bad = [reason for _ in ports[target] if (reason := next(reasons, ""))]
            if bad:
                failures[target, address][host] = bad[0]
    return failures


def targets_of(
    host: str, hosts: Sequence[str], wanted: Mapping[str, Sequence[str]]
) -> Iterable[Endpoint]:
    """Yield what a host connects to: itself, and those of the next TRIED_BY hosts that are wanted.
    Pure."""
    start = hosts.index(host)
    for step in range(min(len(hosts), TRIED_BY + 1)):
        target = hosts[(start + step) % len(hosts)]
        yield from ((target, address) for address in wanted.get(target, ()))
