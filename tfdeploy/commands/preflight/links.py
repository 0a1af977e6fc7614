"""Measure how fast the hosts of a plan reach each other: `check --network`."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from itertools import product
from typing import TYPE_CHECKING

from tfdeploy.config import AUTO_PORTS
from tfdeploy.errors import AgentError, FleetError, HostError, TfdeployError
from tfdeploy.hosts.fleet import answers_of
from tfdeploy.planning import links
from tfdeploy.shared.protocol.preflight import (
    FindLiveTasks,
    LinkPort,
    ListenForLinks,
    MeasuredLink,
    MeasureLink,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.intent import Intent
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.links import Link, Pair

    Client = tuple[Pair, int]  # 0: over the address of the tasks; else over another one

LISTEN_TIMEOUT_S = 20.0
MEASURE_TIMEOUT_S = 60.0
TOTAL_S = 120.0  # of all rounds together, as long as links are not too slow for it
MIN_S, MAX_S = 0.5, 2.0  # in each direction
MAX_BYTES = 2 << 30  # in each direction
MAX_TRIED = 3  # other addresses of a host


def refuse_live_tasks(fleet: Fleet, hosts: Sequence[str]) -> None:
    """Raise FleetError if tasks of anybody run on these hosts: what measures would slow them down.
    A host that does not answer has its error later."""
    outcomes = fleet.outcomes(hosts, lambda agent: agent.ask(FindLiveTasks()).holders)
    live = {host: tasks for host, tasks in answers_of(outcomes).items() if tasks}
    if live:
        errors = [HostError(host, f"it runs {', '.join(each[:3])}") for host, each in live.items()]
        raise FleetError(errors, "measuring would slow them down; --yes measures beside them")


def measure_links(
    fleet: Fleet, intent: Intent, hosts: Sequence[str]
) -> tuple[list[Link], list[tuple[str, Link]]]:
    """Measure the links between these hosts that tasks will use, each alone on its two hosts: over
    their addresses, and over ports of the tasks if they are free; then over other addresses of each
    host, from one of its peers. Return both, the latter with the addresses. Raises nothing."""
    rounds = links.rounds(links.pairs(intent.plan, hosts))
    seconds = min(MAX_S, max(MIN_S, TOTAL_S / 2 / max(1, len(rounds))))
    pairs = [pair for each in rounds for pair in each]
    peers = {own: (other, own) for pair in reversed(pairs) for own, other in (pair, pair[::-1])}
    both = product({*pairs, *peers.values()}, range(MAX_TRIED + 1))
    clients = {client: secrets.token_hex(16) for client in both}
    found, others = [], []
    with ExitStack() as streams:
        opened = fleet.outcomes([*peers], lambda agent: _listen(agent, intent, clients, streams))
        for each in rounds:
            at = {pair: intent.plan.placements_on(pair[1])[0].address for pair in each}
            found += _measure_round(fleet, (clients, 0), at, opened, seconds)
        used = {(link.target.host, link.target.interface) for link in found}
        addresses = {
            host: [a for name, a in port.addresses.items() if (host, name) not in used]
            for host, port in answers_of(opened).items()
        }
        for number in range(1, MAX_TRIED + 1):
            at = {peers[h]: a[number - 1] for h, a in addresses.items() if len(a) >= number}
            for each in links.rounds([*at]):
                these = {pair: at[pair] for pair in each}
                tried = _measure_round(fleet, (clients, number), these, opened, MIN_S)
                others += [(at[p], link) for link in tried for p in each if p == link.pair]
    return found, others


def _listen(
    agent: Agent, intent: Intent, clients: Mapping[Client, str], streams: ExitStack
) -> LinkPort:
    """Have a host listen until `streams` is closed; return its port and addresses."""
    host = intent.inventory.host(agent.host)
    of_tasks = [p.port for p in intent.plan.placements_on(agent.host) if p.port]
    ports = [*of_tasks, *(() if host.ports == AUTO_PORTS else host.ports)]
    own = {_name(client): s for client, s in clients.items() if client[0][1] == agent.host}
    answers = agent.stream(ListenForLinks(list(dict.fromkeys(ports)), own), LISTEN_TIMEOUT_S)
    streams.callback(answers.close)
    answer = answers.open()
    if not 0 < answer.port < 1 << 16:
        raise AgentError(agent.host, f"invalid answer: port {answer.port}")
    return answer


def _name(client: Client) -> str:
    (host, _), number = client
    return f"{host} {number}"


def _measure_round(
    fleet: Fleet,
    clients: tuple[Mapping[Client, str], int],
    addresses: Mapping[Pair, str],
    opened: Mapping[str, LinkPort | TfdeployError],
    seconds: float,
) -> list[Link]:
    """Measure the links of these pairs over these addresses, with the clients of this number."""
    peers: dict[str, str] = dict(addresses.keys())
    secret_of, number = clients

    def measure(agent: Agent) -> MeasuredLink:
        pair = agent.host, peers[agent.host]
        listening = opened[pair[1]]
        if isinstance(listening, TfdeployError):
            raise listening
        client = pair, number
        own = _name(client), secret_of[client]
        request = MeasureLink(addresses[pair], listening.port, *own, seconds, MAX_BYTES)
        return agent.ask(request, MEASURE_TIMEOUT_S)

    found: list[Link] = []
    for host, outcome in fleet.outcomes(peers, measure).items():
        pair = host, peers[host]
        if isinstance(outcome, TfdeployError):
            found += links.not_measured(pair, outcome.message)
        else:
            found += links.measured(pair, outcome)
    return found
