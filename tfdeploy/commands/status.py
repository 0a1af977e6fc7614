"""`tfdeploy status`: the state of every task of a run, as its host reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.commands.watching.history import is_healthy, slow_tasks
from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.formatting.humanize import format_duration
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import unless_deleted
from tfdeploy.planning import roles
from tfdeploy.planning.plan import Placement, select_placements, tasks_by_host
from tfdeploy.shared.outcome import RUNNING, Outcome, RunResult, outcome_of
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.protocol.reports import Status
from tfdeploy.shared.records import ENDED, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.errors import HostError
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run

    Outcomes = Mapping[str, dict[str, TaskReport] | TfdeployError]

HEALTHY, UNHEALTHY, OVER = 0, 1, 3
LOG_LINES = 20  # of each log that an error shows
MAX_REASON = 4000  # characters: a host must not hide the tasks of others
MAX_PEERS = 3  # that the reason of a waiting task names


@dataclass(frozen=True)
class TaskStatus:
    """A task and its state, null without a report of its host."""

    __repr__ = short_repr
    MERGED: ClassVar = {"placement": Placement, "report": TaskReport}

    placement: Placement
    report: TaskReport | None


@dataclass(frozen=True)
class RunStatus:
    """The state of each task."""

    __repr__ = short_repr
    KEYS = ("run_id", "result", "release", "network", "tasks", "left_out", "slow", "errors")
    NAMES: ClassVar = {"run_id": "run"}

    run: Run = field(repr=False)
    tasks: tuple[TaskStatus, ...]
    """The chosen tasks, in the plan's order."""
    errors: tuple[TfdeployError, ...]
    """The errors of hosts."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def release(self) -> str:
        """The id of its release."""
        return self.run.release

    @property
    def network(self) -> str:
        """`guarded`, `strict` or `open`: who may connect to the tasks."""
        return self.run.network

    @property
    def left_out(self) -> tuple[str, ...]:
        """The hosts without which it was resumed."""
        return self.run.left_out

    @property
    def slow(self) -> list[HostError]:
        """What is slower than the rest of the run."""
        return slow_tasks((task.placement, task.report) for task in self.tasks)

    @property
    def ends_s(self) -> float | None:
        """Return after how many seconds max_duration_s ends the run at the latest."""
        found = (task.report.ends_s for task in self.tasks if task.report)
        return max((each for each in found if each is not None), default=None)

    @property
    def result(self) -> RunResult:
        """Whether it is running, or how it ended."""
        live = any(task.report and task.report.state not in ENDED for task in self.tasks)
        return RUNNING if live else self.outcome.result

    @property
    def outcome(self) -> Outcome:
        """Return how the run ended, if all of its tasks have, as far as hosts have reported."""
        tasks = {str(task.placement.task): task.report for task in self.tasks}
        return outcome_of(str(self.run.plan.chief.task), tasks, self.run.plan.needed)

    @property
    def exit_code(self) -> int:
        """Return HEALTHY if every task is READY and trains, or the run succeeded; OVER if it ended
        in any other way; UNHEALTHY in all other cases, and if a host did not answer. They have the
        same meanings as systemctl's."""
        reports = [task.report for task in self.tasks if task.report]
        if self.errors or len(reports) < len(self.tasks):
            return UNHEALTHY
        states = {report.state for report in reports}
        if states <= {*ENDED}:
            return HEALTHY if self.outcome.result == "succeeded" else OVER
        return HEALTHY if all(is_healthy(report) for report in reports) else UNHEALTHY

    def report(self, task: str) -> TaskReport | None:
        return next((t.report for t in self.tasks if str(t.placement.task) == task), None)


def status(
    fleet: Fleet,
    run: Run,
    tail: int = 0,
    tasks: Sequence[str] = (),
    on: Sequence[str] = (),
    on_wait: Callable[[RunStatus, list[str]], None] = lambda status, waiting: None,
) -> RunStatus:
    """Ask every host for its tasks, and for the last `tail` lines of their logs.

    `tasks` and `on` are as in planning/plan.py (empty: all tasks). When some hosts take
    longer, `on_wait` gets the status of the others and the names of those that have not answered.
    Raises only PlanError, if `tasks` and `on` select no task, and RunDeleted.
    """
    chosen = select_placements(run.plan, tasks, on)
    by_host = tasks_by_host(chosen)

    def ask(agent: Agent) -> dict[str, TaskReport]:
        reports = agent.ask(Status(run.inventory.project, run.id, tail)).tasks
        own = [report for report in reports if report.task in by_host[agent.host]]
        return {each.task: replace(each, reason=each.reason[:MAX_REASON]) for each in own}

    def combine(outcomes: Outcomes) -> RunStatus:
        return _combine(run, [p for p in chosen if p.host in outcomes], outcomes)

    def report(outcomes: Outcomes) -> None:
        on_wait(combine(outcomes), [host for host in by_host if host not in outcomes])

    return combine(unless_deleted(fleet.outcomes(by_host, ask, on_wait=report)))


def _combine(run: Run, placements: Sequence[Placement], outcomes: Outcomes) -> RunStatus:
    """Return the status of these placements, whose hosts have all answered or failed."""
    by_host = tasks_by_host(placements)
    reports: dict[str, TaskReport] = {}
    errors: list[TfdeployError] = []
    for host, answer in outcomes.items():
        if isinstance(answer, TfdeployError):
            errors.append(answer)
            continue
        reports |= answer
        missing = [task for task in by_host[host] if task not in answer]
        errors += _missing_tasks(run, host, missing)
    explained = {task: _with_peers(run, report, reports) for task, report in reports.items()}
    of_tasks = ((p, explained.get(str(p.task))) for p in placements)
    statuses = (TaskStatus(p.with_gpus(r.gpus if r else None), r) for p, r in of_tasks)
    return RunStatus(run, tuple(statuses), tuple(errors))


def _with_peers(run: Run, report: TaskReport, reports: Mapping[str, TaskReport]) -> TaskReport:
    """Return the report with a reason that says how the tasks are that TensorFlow waits for."""
    waits_for = report.log_progress.waits_for if report.log_progress else []
    if report.reason or not waits_for:
        return report
    names = {str(roles.script_task(run.inventory.training, p.task)): p for p in run.plan.placements}
    awaited = [names[name] for name in waits_for if name in names]
    peers = [_describe_peer(p, reports.get(str(p.task))) for p in awaited[:MAX_PEERS]]
    more = [f"{len(awaited) - MAX_PEERS} more"] if len(awaited) > MAX_PEERS else []
    reason = f"TensorFlow waits for {' and '.join([*peers, *more])}" if peers else ""
    return replace(report, reason=reason)


def _describe_peer(placement: Placement, report: TaskReport | None) -> str:
    if report is None:
        return f"{placement.task} on {placement.host} (no report)"
    health = f", port {report.health}" if report.health not in (report.state, "-") else ""
    reason = f": {report.reason}" if report.reason else ""
    state = f"{report.state} for {format_duration(report.age_s)}{health}{reason}"
    return f"{placement.task} on {placement.host} ({state})"


def _missing_tasks(run: Run, host: str, missing: Sequence[str]) -> list[TfdeployError]:
    if not missing:
        return []
    message = f"it has no record of {', '.join(missing)} of run {run.id}"
    hint = "the tasks were never started there, or the host's directory was deleted"
    return [AgentError(host, message, hint)]
