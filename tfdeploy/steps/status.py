"""`tfdeploy status`: every task of a run, asked of its host; hosts that don't answer are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.agent.records import TaskReport
from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.told import record, sound

if TYPE_CHECKING:
    from tfdeploy.fleet import Fleet
    from tfdeploy.plan import Placement
    from tfdeploy.remote import Agent
    from tfdeploy.run import Run


@dataclass(frozen=True)
class TaskStatus:
    """A placement and what its host reports of it: None where the host can't be asked."""

    placement: Placement
    report: TaskReport | None


@dataclass(frozen=True)
class RunStatus:
    """Every task in the plan's order, and the errors of the hosts that gave none."""

    run: Run
    tasks: tuple[TaskStatus, ...]
    errors: tuple[TfdeployError, ...]

    def report(self, task: str) -> TaskReport | None:
        return next((t.report for t in self.tasks if str(t.placement.task) == task), None)


def status(fleet: Fleet, run: Run, tail: int = 0) -> RunStatus:
    """Ask every host. `tail` is how many of each log's last lines to bring. Raises nothing."""

    def ask(agent: Agent) -> dict[str, TaskReport]:
        body = {"project": run.inventory.project, "run": run.id, "tail": tail}
        answer = agent.ask("status", body)
        told = sound(agent.host, lambda: list(answer["tasks"]))
        reports = [record(agent.host, TaskReport, one) for one in told]
        mine = [str(placement.task) for placement in run.plan.on(agent.host)]
        return {report.task: report for report in reports if report.task in mine}

    outcomes = fleet.outcomes(run.plan.hosts, ask)
    reports: dict[str, TaskReport] = {}
    errors: list[TfdeployError] = []
    for host, outcome in outcomes.items():
        if isinstance(outcome, TfdeployError):
            errors.append(outcome)
            continue
        reports |= outcome
        errors += _unknown(run, host, outcome)
    tasks = (TaskStatus(p, reports.get(str(p.task))) for p in run.plan.placements)
    return RunStatus(run, tuple(tasks), tuple(errors))


def _unknown(run: Run, host: str, reports: dict[str, TaskReport]) -> list[TfdeployError]:
    missing = [str(p.task) for p in run.plan.on(host) if str(p.task) not in reports]
    if not missing:
        return []
    message = f"it knows nothing of {', '.join(missing)} of run {run.id}"
    return [AgentError(host, message, "was it ever started, or was its directory removed?")]
