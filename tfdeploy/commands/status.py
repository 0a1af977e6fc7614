"""`tfdeploy status`: the state of every task of a run, as its host reports it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.reports import Status
from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.formatting.humanize import format_duration
from tfdeploy.planning import roles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.agent.records import TaskReport
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run


MAX_PEERS = 3  # that the reason of a waiting task names


@dataclass(frozen=True)
class TaskStatus:
    """A placement and its host's report of it (None: the host gave none)."""

    placement: Placement
    report: TaskReport | None


@dataclass(frozen=True)
class RunStatus:
    """Every task in the plan's order, and the errors of the hosts that gave no report."""

    run: Run = field(repr=False)
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
    explained = {task: _with_peers(run, report, reports) for task, report in reports.items()}
    tasks = (TaskStatus(p, explained.get(str(p.task))) for p in run.plan.placements)
    return RunStatus(run, tuple(tasks), tuple(errors))


def _with_peers(run: Run, report: TaskReport, reports: Mapping[str, TaskReport]) -> TaskReport:
    """Return the report with a reason that says how the tasks are that TensorFlow waits for."""
    waits_for = report.log_progress.waits_for if report.log_progress else []
    if report.reason or not waits_for:
        return report
    names = {str(roles.script_task(run.inventory.training, p.task)): p for p in run.plan.placements}
    known = [names[name] for name in waits_for if name in names]
    peers = [_describe_peer(p, reports.get(str(p.task))) for p in known[:MAX_PEERS]]
    more = [f"{len(known) - MAX_PEERS} more"] if len(known) > MAX_PEERS else []
    reason = f"TensorFlow waits for {' and '.join([*peers, *more])}" if peers else ""
    return replace(report, reason=reason)


def _describe_peer(placement: Placement, report: TaskReport | None) -> str:
    if report is None:
        return f"{placement.task} on {placement.host} (no report)"
    health = f", port {report.health}" if report.health not in (report.state, "-") else ""
    reason = f": {report.reason}" if report.reason else ""
    state = f"{report.state} for {format_duration(report.age_s)}{health}{reason}"
    return f"{placement.task} on {placement.host} ({state})"


def _missing_tasks(run: Run, host: str, reports: dict[str, TaskReport]) -> list[TfdeployError]:
    missing = [str(p.task) for p in run.plan.placements_on(host) if str(p.task) not in reports]
    if not missing:
        return []
    message = f"it has no record of {', '.join(missing)} of run {run.id}"
    hint = "the tasks were never started there, or the host's directory was deleted"
    return [AgentError(host, message, hint)]
