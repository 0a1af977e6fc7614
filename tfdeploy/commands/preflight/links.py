"""Measure how fast the hosts of a plan reach each other: `check --network`."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tfdeploy.config import AUTO_PORTS
from tfdeploy.errors import AgentError, FleetError, HostError, TfdeployError
from tfdeploy.planning import links
from tfdeploy.shared.protocol.preflight import (
    FindLiveTasks,
    ListenForLinks,
    MeasuredLink,
    MeasureLink,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.plan import Intent
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.links import Link, Pair

LISTEN_TIMEOUT_S = 20.0
MEASURE_TIMEOUT_S = 60.0
TOTAL_S = 120.0  # of all rounds together, as long as links are not too slow for it
MIN_S, MAX_S = 0.5, 2.0  # in each direction
MAX_BYTES = 2 << 30  # in each direction


def refuse_live_tasks(fleet: Fleet, hosts: Sequence[str]) -> None:
    """Raise FleetError if tasks of anybody run on these hosts: what measures would slow them down.
    A host that does not answer has its error later."""
    outcomes = fleet.outcomes(hosts, lambda agent: agent.ask(FindLiveTasks()).holders)
    live = {h: o for h, o in outcomes.items() if not isinstance(o, TfdeployError) and o}
    if live:
        errors = [HostError(host, f"it runs {', '.join(each[:3])}") for host, each in live.items()]
        raise FleetError(errors, "measuring would slow them down; --yes measures beside them")


def measure_links(fleet: Fleet, intent: Intent, hosts: Sequence[str]) -> list[Link]:
    """Measure the links between these hosts that tasks will use, each alone on its two hosts: over
    their addresses, and over ports of the tasks if they are free. Raises nothing."""
    planned = links.rounds(links.pairs(intent.plan, hosts))
    seconds = min(MAX_S, max(MIN_S, TOTAL_S / 2 / max(1, len(planned))))
    clients = {pair: secrets.token_hex(16) for each in planned for pair in each}
    found = []
    with ExitStack() as streams:
        listening = [h for h in intent.plan.hosts if h in {peer for _, peer in clients}]
        opened = fleet.outcomes(listening, lambda agent: _listen(agent, intent, clients, streams))
        for pairs in planned:
            found += _measure_round(fleet, intent, {p: clients[p] for p in pairs}, opened, seconds)
    return found


def _listen(agent: Agent, intent: Intent, clients: Mapping[Pair, str], streams: ExitStack) -> int:
    """Have a host listen until `streams` is closed; return its port."""
    host = intent.inventory.host(agent.host)
    of_tasks = [p.port for p in intent.plan.placements_on(agent.host) if p.port]
    ports = [*of_tasks, *(() if host.ports == AUTO_PORTS else host.ports)]
    own = {client: secret for (client, peer), secret in clients.items() if peer == agent.host}
    answers = agent.stream(ListenForLinks(list(dict.fromkeys(ports)), own), LISTEN_TIMEOUT_S)
    streams.callback(answers.close)
    port = answers.open().port
    if not 0 < port < 1 << 16:
        raise AgentError(agent.host, f"invalid answer: port {port}")
    return port


def _measure_round(
    fleet: Fleet,
    intent: Intent,
    clients: Mapping[Pair, str],
    opened: Mapping[str, int | TfdeployError],
    seconds: float,
) -> list[Link]:
    peers: dict[str, str] = dict(clients.keys())

    def measure(agent: Agent) -> MeasuredLink:
        host = agent.host
        peer = peers[host]
        port = opened[peer]
        if isinstance(port, TfdeployError):
            raise port
        address = intent.plan.placements_on(peer)[0].address
        request = MeasureLink(address, port, host, clients[host, peer], seconds, MAX_BYTES)
        return agent.ask(request, MEASURE_TIMEOUT_S)

    found: list[Link] = []
    for host, outcome in fleet.outcomes(peers, measure).items():
        pair = host, peers[host]
        if isinstance(outcome, TfdeployError):
            found += links.not_measured(pair, outcome.message)
        else:
            found += links.measured(pair, outcome)
    return found
