"""Check whether the hosts can connect to each other's ports, before any task runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TaskNotReady
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.planning import frameworks
from tfdeploy.shared.protocol.preflight import Address, ListenOnPorts, OpenPorts, TryPorts
from tfdeploy.shared.records import PORT, RENDEZVOUS, SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdeploy.commands.intent import Intent
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement, Plan

OPEN_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 5.0
HEARTBEAT = "the run's heartbeat"

# The name of a port (its task's, or HEARTBEAT) and the task whose host has it.
Target = tuple[str, "Placement"]


def check_ports(fleet: Fleet, intent: Intent, hosts: Sequence[str]) -> list[TfdeployError]:
    """Have each of the hosts open the ports that the run needs, and the others connect to them.

    Return what went wrong. Raises nothing.
    """
    used = [host for host in intent.plan.hosts if host in hosts]
    with ExitStack() as streams:

        def open_ports(agent: Agent) -> OpenPorts:
            answers = agent.stream(ListenOnPorts(_wanted_ports(intent.plan, agent.host)))
            streams.callback(answers.close)  # then the host closes the ports
            return _verified(agent.host, answers.open(OPEN_TIMEOUT_S))

        outcomes = fleet.outcomes(used, open_ports)
        opened = answers_of(outcomes)
        errors = errors_of(outcomes)
        errors += [AgentError(h, *why) for h, o in opened.items() for why in o.taken]
        results = fleet.outcomes(opened, lambda agent: _connect(agent, intent, opened))
    return [*errors, *errors_of(results), *_unreached(results)]


def _verified(host: str, opened: OpenPorts) -> OpenPorts:
    if not all(0 < port < 1 << 16 for port in opened.open.values()):
        raise AgentError(host, f"invalid answer: ports {[*opened.open.values()]!r:.40}")
    return opened


def _wanted_ports(plan: Plan, host: str) -> dict[str, int]:
    wanted = {str(p.task): p.port for p in plan.placements_on(host) if p.port is not None}
    return wanted | ({HEARTBEAT: plan.heartbeat_port} if host == plan.chief.host else {})


def _connect(agent: Agent, intent: Intent, opened: Mapping[str, OpenPorts]) -> dict[Target, str]:
    """Have a host connect to the ports that its tasks will need; return why it could not."""
    plan = intent.plan
    training = intent.inventory.training
    needed: list[Target] = [
        (str(p.task), p)
        for p in plan.reachability_targets(agent.host)
        # A start waits for no other ports.
        if (ready := frameworks.ready(training, plan, p)) in (SERVER, PORT)
        or (ready == RENDEZVOUS and p == plan.chief)
    ]
    if agent.host != plan.chief.host:
        needed.append((HEARTBEAT, plan.chief))
    targets = [(n, p) for n, p in needed if p.host in opened and n in opened[p.host].open]
    at = [Address(p.address, opened[p.host].open[name]) for name, p in targets]
    if not at:
        return {}
    reasons = agent.ask(TryPorts(at, CONNECT_TIMEOUT_S)).answers
    if len(reasons) != len(targets):
        raise AgentError(agent.host, f"invalid answer: {len(reasons)} of {len(targets)} ports")
    return {target: reason for target, reason in zip(targets, reasons, strict=True) if reason}


def _unreached(results: Mapping[str, dict[Target, str] | TfdeployError]) -> Iterator[TaskNotReady]:
    """Yield one error for each port that is not reached, with all hosts that can't reach it."""
    details_by_target: dict[Target, dict[str, str]] = {}
    for host, result in answers_of(results).items():
        for target, detail in result.items():
            details_by_target.setdefault(target, {})[host] = detail
    for (name, placement), details in details_by_target.items():
        where = f"{placement.host} at {placement.address}, on the port of {name}"
        yield not_reached(placement, where, details)


def not_reached(placement: Placement, where: str, details: Mapping[str, str]) -> TaskNotReady:
    """Return the error of a task that hosts can't reach; `details` says why, by host."""
    hosts, detail = fold_names(details), escape_line(next(iter(details.values())))
    return TaskNotReady(
        str(placement.task),
        placement.host,
        f"{hosts} can't reach {where}: {detail}",
        f"check for a firewall between the hosts, and that hosts.{placement.host}.address is an "
        f"address that {hosts} can connect to",
    )
