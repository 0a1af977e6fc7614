"""Who failed first, and what fell because of it: named with the last lines of its log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.agent.records import FAILED, LOST, STOPPED
from tfdeploy.agent.restart import named
from tfdeploy.errors import FleetError, TaskFailed, TfdeployError
from tfdeploy.hostnames import FEW, folded

if TYPE_CHECKING:
    from tfdeploy.agent.records import TaskReport
    from tfdeploy.steps.status import RunStatus, TaskStatus

FELL = (FAILED, LOST)


def blame(seen: RunStatus, first: str = "") -> TfdeployError:
    """The failure to show of a run that ended badly. `first` names who was seen to fail first, if
    that was seen; else it is who another task names as the cause of its own end, else who failed
    the longest ago, each by the clock of its own host.
    """
    over = [t for t in seen.tasks if t.report and t.report.state in (*FELL, STOPPED)]
    ended = sorted(over, key=lambda task: _order(task, over, first))
    fell = [task for task in ended[1:] if _state(task) in FELL]
    told = [_failure(ended[0], fell)] if ended else []
    if not told and not seen.errors:
        told = [_begun_again(seen)]
    hint = f"the logs are kept: tfdeploy logs {seen.run.flags}"
    return FleetError([*told, *seen.errors], hint)


def _order(task: TaskStatus, ended: list[TaskStatus], first: str) -> tuple[bool, bool, bool, float]:
    name = str(task.placement.task)
    named_by_others = any(other.report and other.report.cause == name for other in ended)
    report = _report(task)
    return name != first, not named_by_others, report.state not in FELL, -report.age_s


def _failure(task: TaskStatus, fell: list[TaskStatus]) -> TaskFailed:
    report = _report(task)
    again = f" after {report.restarts} restarts" if report.restarts else ""
    message = f"it ended{again}: {_why(report)}"
    if fell:
        message += "\n  because of it ended " + ", ".join(_lines(fell))
    return TaskFailed(str(task.placement.task), task.placement.host, message, log=report.log)


def _lines(fell: list[TaskStatus]) -> list[str]:
    """A few one by one; of many, those that ended for the same reason together."""
    if len(fell) <= FEW:
        return [_line([task]) for task in fell]
    alike: dict[str, list[TaskStatus]] = {}
    for task in fell:
        alike.setdefault(_why(_report(task)), []).append(task)
    return [_line(tasks) for tasks in alike.values()]


def _line(alike: list[TaskStatus]) -> str:
    tasks = folded(str(task.placement.task) for task in alike)
    hosts = folded(task.placement.host for task in alike)
    return f"{tasks} on {hosts} ({_why(_report(alike[0]))})"


def _why(report: TaskReport) -> str:
    reason = report.reason or named(report.exit or 0)
    return f"LOST, {reason}" if report.state == LOST else reason


def _state(task: TaskStatus) -> str:
    return _report(task).state


def _report(task: TaskStatus) -> TaskReport:
    assert task.report  # only tasks that have one come here
    return task.report


def _begun_again(seen: RunStatus) -> TaskFailed:
    chief = seen.run.plan.chief
    message = "it ended, and all tasks live again: has somebody resumed the run meanwhile?"
    return TaskFailed(str(chief.task), chief.host, message)
