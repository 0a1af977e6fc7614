"""Find the task that failed first, and the tasks that ended because of it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.errors import FleetError, TaskFailed
from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names
from tfdeploy.formatting.humanize import escape_line, format_count
from tfdeploy.formatting.known_messages import first_meaning
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.shared.outcome import NOT_RESTARTED_ALONE, describe_exit
from tfdeploy.shared.records import FAILED, LOST, PEER_ERRORS, PEER_STATUS_CODES, STOPPED

if TYPE_CHECKING:
    from tfdeploy.commands.status import RunStatus, TaskStatus
    from tfdeploy.shared.records import TaskReport

BAD_ENDS = (FAILED, LOST)
# In the reason of a task that lost a connection to another one.
LOST_PEER = re.compile("|".join((*PEER_ERRORS, *PEER_STATUS_CODES, "closed by peer")))
TOGETHER = (
    "every task has to take part in evaluate, save and other steps that tasks run together: with "
    "MultiWorkerMirroredStrategy all workers save, all but the chief into a temporary folder"
)


def root_cause(status: RunStatus, first: str = "") -> FleetError:
    """Return the failure to report for a run that ended badly.

    That is a task that names no other one as the cause of its end: the task `first`, if it was
    observed to fail first; else the one that another task names as the cause; else the one that
    failed the longest ago, by the clock of its own host. The error has the last lines of its log,
    and names the tasks that failed with it.
    """
    over = [t for t in status.tasks if t.report and t.report.state in (*BAD_ENDS, STOPPED)]
    ended = sorted(over, key=lambda task: _order(task, over, first))
    consequences = [task for task in ended[1:] if _report(task).state in BAD_ENDS]
    failures = [_failure(ended[0], consequences)] if ended else []
    if not failures and not status.errors:
        failures = [_all_running_again(status)]
    hint = f"the logs: tfdeploy logs {status.run.flags}"
    return FleetError([*failures, *status.errors], hint)


def start_failure(status: RunStatus, first: str = "") -> FleetError:
    """Return the root cause without its hint: a start that fails fetches the logs, and names their
    folder."""
    return FleetError(root_cause(status, first).errors)


def _order(task: TaskStatus, ended: list[TaskStatus], first: str) -> tuple[bool | float, ...]:
    name, report = str(task.placement.task), _report(task)
    has_cause = any(str(other.placement.task) == report.cause for other in ended)
    is_named_cause = any(_report(other).cause == name for other in ended)
    is_bad = report.state in BAD_ENDS
    return has_cause, name != first, not is_named_cause, not is_bad, -report.age_s


def _failure(task: TaskStatus, consequences: list[TaskStatus]) -> TaskFailed:
    report = _report(task)
    restarts = f" after {format_count(report.restarts, 'restart')}" if report.restarts else ""
    message = f"it ended{restarts}: {_reason(report)}"
    alike = [each for each in consequences if _reason(_report(each)) == _reason(report)]
    others = [each for each in consequences if each not in alike]
    caused = [each for each in others if _is_caused(_report(each), report)]
    own = [each for each in others if each not in caused]
    if alike:
        message += f"\n  failed in the same way: {_names(alike)}"
    for words, tasks in (("it caused the end of", caused), ("failed, too:", own)):
        said = _reason(report)
        message += f"\n  {words} {', '.join(_describe(tasks, said))}" if tasks else ""
    name = str(task.placement.task)
    hint = _hint(report, has_gpus=bool(task.placement.gpus))
    return TaskFailed(name, task.placement.host, message, hint, log=report.log)


def _is_caused(report: TaskReport, by: TaskReport) -> bool:
    """Return whether it is proven that a task ended because of another one: its supervisor says so,
    or its program lost a connection. What ended later may have failed by itself."""
    return report.cause == by.task or (not report.cause and bool(LOST_PEER.search(report.reason)))


def _hint(report: TaskReport, *, has_gpus: bool) -> str:
    """Return what to do about the failure of a task."""
    if NOT_RESTARTED_ALONE in report.reason and LOST_PEER.search(report.reason):
        return TOGETHER
    return first_meaning(map(plain_text, report.log), has_gpus=has_gpus)


def _describe(tasks: list[TaskStatus], said: str) -> list[str]:
    """Describe a few tasks one by one, many of them grouped by the reason for their end; without a
    reason that repeats what was `said`."""
    if len(tasks) <= MAX_LISTED:
        return [_describe_group([task], said) for task in tasks]
    by_reason: dict[str, list[TaskStatus]] = {}
    for task in tasks:
        by_reason.setdefault(_reason(_report(task)), []).append(task)
    return [_describe_group(group, said) for group in by_reason.values()]


def _describe_group(group: list[TaskStatus], said: str) -> str:
    reason = _reason(_report(group[0]))
    is_said = reason.endswith(f" failed: {said}")  # as agent/supervision/termination.py words it
    return _names(group) if is_said else f"{_names(group)} ({reason})"


def _names(group: list[TaskStatus]) -> str:
    tasks = fold_names(str(task.placement.task) for task in group)
    hosts = fold_names(task.placement.host for task in group)
    return f"{tasks} on {hosts}"


def _reason(report: TaskReport) -> str:
    reason = escape_line(report.reason) or describe_exit(report.exit or 0)
    return f"LOST, {reason}" if report.state == LOST else reason


def _report(task: TaskStatus) -> TaskReport:
    assert task.report  # only tasks with a report are passed here
    return task.report


def _all_running_again(status: RunStatus) -> TaskFailed:
    chief = status.run.plan.chief
    message = "it ended, but all tasks are active again: did another command resume the run?"
    return TaskFailed(str(chief.task), chief.host, message)
