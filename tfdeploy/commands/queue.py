"""`tfdeploy queue`: which runs of all users wait on the hosts, in order; and move one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.shared.protocol.reports import ListQueue, Move, QueuedRun
from tfdeploy.shared.records import HIGH

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
    """Its project, or ""."""
    user: str
    """The user of its hosts who has started it."""
    priority: str
    """`high` or `normal`: runs with `high` come first."""
    age_s: float | None
    """For how many seconds it has waited."""
    hosts: Mapping[str, str]
    """Each host on which it waits, and why."""


@dataclass(frozen=True)
class QueueResult:
    """The runs that wait on the hosts."""

    __repr__ = short_repr

    waiting: tuple[WaitingRun, ...]
    """The runs, first come first."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts."""


def list_queue(fleet: Fleet) -> QueueResult:
    """Ask every host who waits there. Raises nothing."""
    outcomes = fleet.outcomes(fleet.agents, lambda agent: agent.ask(ListQueue()))
    by_run: dict[tuple[bool, int, str, str], list[tuple[str, QueuedRun]]] = {}
    for host, found in answers_of(outcomes).items():
        for run in found.runs:
            in_order = (run.priority != HIGH, run.submitted, run.run, run.user)
            by_run.setdefault(in_order, []).append((host, run))
    runs = [_together(found) for _, found in sorted(by_run.items())]
    return QueueResult(tuple(runs), tuple(errors_of(outcomes)))


def move(fleet: Fleet, run: Run, priority: str) -> None:
    """Give a run that waits another priority; its chief's supervisor passes it on. Raises
    AgentError if the run does not wait."""
    chief = run.plan.chief
    request = Move(run.inventory.project, run.id, str(chief.task), priority)
    fleet.agents[chief.host].ask(request)


def _together(on_hosts: list[tuple[str, QueuedRun]]) -> WaitingRun:
    """Return a run from what each of its hosts says."""
    runs = [run for _, run in on_hosts]
    first = runs[0]
    return WaitingRun(
        first.run,
        next((run.project for run in runs if run.project), ""),
        first.user,
        first.priority,
        max((run.age_s for run in runs if run.age_s is not None), default=None),
        {host: run.reason for host, run in on_hosts},
    )
