"""`tfdeploy queue`: which runs of all users wait on the hosts, in order; and move one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import errors_of
from tfdeploy.shared.protocol.reports import HostQueue, ListQueue, Move, WaitingTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run


@dataclass(frozen=True)
class WaitingRun:
    """A run that waits, on all hosts together."""

    run: str
    """The run's id."""
    project: str
    """Its project; "" if its hosts hide it."""
    user: str
    """The user of its hosts who has started it."""
    priority: int
    """Its priority: runs with higher ones come first."""
    age_s: float
    """The seconds since it was submitted."""
    hosts: Mapping[str, str]
    """Each host on which it waits, and why."""


@dataclass(frozen=True)
class QueueResult:
    """The runs that wait on the hosts."""

    __repr__ = short_repr

    waiting: tuple[WaitingRun, ...]
    """The runs, first come first."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts that gave no answer."""


def list_queue(fleet: Fleet) -> QueueResult:
    """Ask every host who waits there. Raises nothing."""
    outcomes = fleet.outcomes(fleet.agents, lambda agent: agent.ask(ListQueue()))
    tasks: dict[str, list[tuple[str, WaitingTask]]] = {}
    for host, found in outcomes.items():
        for task in found.tasks if isinstance(found, HostQueue) else ():
            tasks.setdefault(task.run, []).append((host, task))
    runs = map(_together, tasks.values())
    in_order = sorted(runs, key=lambda run: (-run.priority, -run.age_s, run.run))
    return QueueResult(tuple(in_order), tuple(errors_of(outcomes)))


def move(fleet: Fleet, run: Run, priority: int) -> None:
    """Give a run that waits another priority; its chief's supervisor passes it on. Raises
    AgentError if the run does not wait."""
    chief = run.plan.chief
    request = Move(run.inventory.project, run.id, str(chief.task), priority)
    fleet.agents[chief.host].ask(request)


def _together(tasks: list[tuple[str, WaitingTask]]) -> WaitingRun:
    """Return a run from its tasks on all hosts. Its age is the largest: clocks of hosts differ."""
    first = tasks[0][1]
    reasons: dict[str, dict[str, None]] = {}
    for host, task in tasks:
        reasons.setdefault(host, {})[task.reason] = None
    return WaitingRun(
        first.run,
        first.project,
        first.user,
        first.priority,
        max(task.age_s for _, task in tasks),
        {host: "; ".join(each) for host, each in reasons.items()},
    )
