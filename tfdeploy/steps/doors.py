"""Do the hosts reach each other's ports? Tried before there are tasks that need them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.records import PROCESS
from tfdeploy.errors import AgentError, TaskNotReady, TfdeployError
from tfdeploy.fleet import errors_of
from tfdeploy.hostnames import folded
from tfdeploy.told import sound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.fleet import Fleet
    from tfdeploy.plan import Placement, Plan
    from tfdeploy.remote import Agent
    from tfdeploy.session import Answer
    from tfdeploy.steps.plan import Intent

DOORS_S = 20.0
KNOCK_S = 5.0
NEWS = "the run's own news"


@dataclass(frozen=True)
class Doors:
    """What a host has opened: the `ports` by their tasks, and why others are `taken`. They are open
    for as long as `answers` may be heard."""

    answers: object
    ports: Mapping[str, int]
    taken: tuple[tuple[str, str], ...]


def closed(fleet: Fleet, intent: Intent, there: Sequence[str]) -> list[TfdeployError]:
    """Every port that the run will need is opened by its host, and knocked at by the others: what
    keeps them from it. Raises nothing."""
    hosts = [host for host in intent.plan.hosts if host in there]
    with ExitStack() as opened:

        def open_one(agent: Agent) -> Doors:
            wanted = {"wanted": _wanted(intent.plan, agent.host)}
            followed = agent.answers("doors", wanted, DOORS_S)
            opened.callback(followed.close)  # hangs up, and the host shuts them
            answers = iter(followed)
            told = next(answers)
            return sound(agent.host, lambda: _opened(answers, told))

        outcomes = fleet.outcomes(hosts, open_one)
        doors = {h: o for h, o in outcomes.items() if not isinstance(o, TfdeployError)}
        errors = errors_of(outcomes)
        errors += [AgentError(h, *no) for h, each in doors.items() for no in each.taken]
        knocked = fleet.outcomes(doors, lambda agent: _knocked(agent, intent, doors))
    errors += errors_of(knocked)
    silent: dict[tuple[str, Placement], dict[str, str]] = {}
    for host, answers in knocked.items():
        if not isinstance(answers, TfdeployError):
            for door, detail in answers.items():
                silent.setdefault(door, {})[host] = detail
    return [*errors, *(_unreached(name, to, who) for (name, to), who in silent.items())]


def pairs(told: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """What a host says of several things, each `[message, hint]`."""
    return tuple((str(message), str(hint)) for message, hint in told)


def _opened(answers: object, told: Answer) -> Doors:
    ports = {str(task): int(port) for task, port in told["open"].items()}
    if not all(0 < port < 1 << 16 for port in ports.values()):
        raise ValueError
    return Doors(answers, ports, pairs(told["taken"]))


def _wanted(plan: Plan, host: str) -> dict[str, int]:
    wanted = {str(p.task): p.port for p in plan.on(host) if p.port is not None}
    return wanted | ({NEWS: plan.beacon_port} if host == plan.chief.host else {})


def _knocked(
    agent: Agent, intent: Intent, doors: Mapping[str, Doors]
) -> dict[tuple[str, Placement], str]:
    """Which of the doors that its tasks will need it doesn't reach, and why."""
    plan = intent.plan
    needed = [(str(p.task), p) for p in plan.dialled_from(agent.host)]
    if intent.inventory.training.ready == PROCESS:
        needed = []  # nobody waits for their ports
    if agent.host != plan.chief.host:
        needed.append((NEWS, plan.chief))
    known = [(n, to) for n, to in needed if to.host in doors and n in doors[to.host].ports]
    at = [{"address": to.address, "port": doors[to.host].ports[name]} for name, to in known]
    if not at:
        return {}
    told = agent.ask("knock", {"at": at, "timeout_s": KNOCK_S})
    answers = sound(agent.host, lambda: dict(zip(known, map(str, told["answers"]), strict=True)))
    return {door: why for door, why in answers.items() if why}


def _unreached(name: str, to: Placement, who: Mapping[str, str]) -> TaskNotReady:
    hosts, detail = folded(who), next(iter(who.values()))
    return TaskNotReady(
        str(to.task),
        to.host,
        f"{hosts} can't reach {to.host} at {to.address}, on the port of {name}: {detail}",
        f"is a firewall between them? is hosts.{to.host}.address what {hosts} can dial?",
    )
