"""Wait until every task of a run is READY."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.commands.following.failure_report import root_cause
from tfdeploy.commands.status import status
from tfdeploy.errors import HostError, TaskNotReady, raise_all
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.shared.protocol.reports import StateChange
from tfdeploy.shared.records import ENDED, READY, STOPPED, SUCCEEDED, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.commands.status import TaskStatus
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.streams.following import Following
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent

LOG_LINES = 20  # of each log that an error shows


def wait_until_ready(
    fleet: Fleet,
    run: Run,
    following: Following[RunEvent],
    on_report: Callable[[str, TaskReport], None],
) -> bool:
    """Wait until every task is READY or has succeeded; call `on_report(host, report)` at each
    change of a task's state. Return False if the chief has succeeded before that.

    Raises HostError if a host is lost, TaskFailed if a task ends, and TaskNotReady after
    training.ready_timeout_s.
    """
    deadline = time.monotonic() + run.inventory.training.ready_timeout_s
    waiting = {str(p.task) for p in run.plan.placements}
    for host, event in following.events(deadline):
        if isinstance(event, HostError):
            raise event
        if not isinstance(event, StateChange):
            continue
        report = event.state
        on_report(host, report)
        if report.state in (READY, SUCCEEDED):
            waiting.discard(report.task)
        elif report.state in ENDED:
            _raise_unless_succeeded(fleet, run, report)
            return False
        if not waiting:
            return True
    _raise_not_ready(fleet, run, waiting)
    return False


def _raise_unless_succeeded(fleet: Fleet, run: Run, ended: TaskReport) -> None:
    """Raise why a task ended, unless the chief has succeeded: a short training may be over, and its
    ps stopped, before every task was reported READY."""
    found = status(fleet, run, LOG_LINES)
    chief = found.report(str(run.plan.chief.task))
    if ended.state != STOPPED or not chief or chief.state != SUCCEEDED:
        raise root_cause(found, ended.task)


def _raise_not_ready(fleet: Fleet, run: Run, waiting: set[str]) -> None:
    limit_s = run.inventory.training.ready_timeout_s
    found = status(fleet, run, LOG_LINES)
    late = [task for task in found.tasks if str(task.placement.task) in waiting]
    errors = [*found.errors, *(_not_ready(task, limit_s) for task in late)]
    hint = (
        'check that the script listens on its port, or set training.ready = "process" if it opens '
        "none; training.ready_timeout_s sets the limit"
    )
    raise_all(errors, hint)


def _not_ready(task: TaskStatus, limit_s: float) -> TaskNotReady:
    placement, report = task.placement, task.report
    health = (
        f"port {placement.port} is {escape_line(report.health)}"
        if report
        else "health unknown: its host did not report"
    )
    message = f"not READY within {limit_s:g} s; {health}"
    log = report.log if report else ()
    return TaskNotReady(str(placement.task), placement.host, message, log=log)
