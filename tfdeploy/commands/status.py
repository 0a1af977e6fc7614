"""`tfdeploy status`: the state of every task of a run, as its host reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.reports import Status
from tfdeploy.errors import AgentError, TfdeployError

if TYPE_CHECKING:
    from tfdeploy.agent.records import TaskReport
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run


@dataclass(frozen=True)
class TaskStatus:
    """A placement and its host's report of it (None: the host gave none)."""

    placement: Placement
    report: TaskReport | None


@dataclass(frozen=True)
class RunStatus:
    """Every task in the plan's order, and the errors of the hosts that gave no report."""

    run: Run
    tasks: tuple[TaskStatus, ...]
    errors: tuple[TfdeployError, ...]

    def report(self, task: str) -> TaskReport | None:
        return next((t.report for t in self.tasks if str(t.placement.task) == task), None)


def status(fleet: Fleet, run: Run, tail: int = 0) -> RunStatus:
    """Ask every host for its tasks, and for the last `tail` lines of their logs. Raises nothing."""

    def ask(agent: Agent) -> dict[str, TaskReport]:
        reports = agent.ask(Status(run.inventory.project, run.id, tail)).tasks
        tasks = [str(placement.task) for placement in run.plan.placements_on(agent.host)]
        return {report.task: report for report in reports if report.task in tasks}

    outcomes = fleet.outcomes(run.plan.hosts, ask)
    reports: dict[str, TaskReport] = {}
    errors: list[TfdeployError] = []
    for host, outcome in outcomes.items():
        if isinstance(outcome, TfdeployError):
            errors.append(outcome)
            continue
        reports |= outcome
        errors += _missing_tasks(run, host, outcome)
    tasks = (TaskStatus(p, reports.get(str(p.task))) for p in run.plan.placements)
    return RunStatus(run, tuple(tasks), tuple(errors))


def _missing_tasks(run: Run, host: str, reports: dict[str, TaskReport]) -> list[TfdeployError]:
    missing = [str(p.task) for p in run.plan.placements_on(host) if str(p.task) not in reports]
    if not missing:
        return []
    message = f"it has no record of {', '.join(missing)} of run {run.id}"
    hint = "the tasks were never started there, or the host's directory was deleted"
    return [AgentError(host, message, hint)]
