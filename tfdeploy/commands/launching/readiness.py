"""Wait until every task of a run that was started is READY."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.commands.launching.failure_report import start_failure
from tfdeploy.commands.status import LOG_LINES, status
from tfdeploy.errors import AGE, HostError, TaskNotReady, raise_all
from tfdeploy.formatting.humanize import escape_line, format_duration
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.planning import frameworks
from tfdeploy.planning.versions import differences
from tfdeploy.shared.records import (
    BACKOFF,
    ENDED,
    GETS_CHECKPOINTS,
    HAS_PLACES,
    QUEUED,
    READY,
    RENDEZVOUS,
    STARTING,
    STOPPED,
    SUCCEEDED,
    TaskReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.commands.intent import StartWatcher, Waiting
    from tfdeploy.commands.status import TaskStatus
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.run import Run

RENDEZVOUS_MARGIN_S = 30.0
FIRST_EXPLAIN_S, EXPLAIN_S = 0.5, 10.0  # after which time in the queue hosts are asked why
NOT_READY_HINT = (
    'check that the script listens on its port, or set training.ready = "process" if it opens '
    "none; training.ready_timeout_s sets the limit"
)


def wait_until_ready(
    fleet: Fleet,
    run: Run,
    following: Following,
    watcher: StartWatcher,
    turn_s: float | None = None,
) -> bool:
    """Wait until every task is READY or has succeeded; note in what hosts differ that their tasks
    have imported. Return False if the chief has succeeded before that.

    If the run was queued, first wait up to `turn_s` seconds for its turn. Raises TfdeployError if
    hosts may not differ so, HostError if one is lost, TaskFailed if a task ends, what the tasks
    wait for after `turn_s`, and TaskNotReady after training.ready_timeout_s, not counting the time
    in which workers get the chief's checkpoints.
    """
    tasks = _Readiness(run, watcher.on_report, is_queued=turn_s is not None)
    if turn_s is not None:
        _wait_for_turn(fleet, run, following, tasks, turn_s, watcher.waiting)
    while not tasks.is_decided():
        event = next(following.events(tasks.deadline), None)
        if event is None:
            break
        tasks.dispatch(*event)
    refusals, notes = differences(tasks.versions, run.inventory.training)
    raise_all(refusals)  # first: it may be why a task has failed, or is not READY
    watcher.on_notes(notes)
    if not tasks.is_decided():
        _raise_not_ready(fleet, run, tasks.waiting)
        return False
    if tasks.ended:
        _raise_unless_succeeded(fleet, run, tasks.ended)
        return False
    return True


def _wait_for_turn(
    fleet: Fleet,
    run: Run,
    following: Following,
    tasks: _Readiness,
    wait_s: float,
    waiting: Waiting,
) -> None:
    """Wait until no task is QUEUED any more, or one has ended. Raises what they wait for after
    `wait_s` seconds."""
    deadline, shown, pause_s = time.monotonic() + wait_s, set[str](), FIRST_EXPLAIN_S
    with waiting() as show:
        while True:
            until = min(deadline, time.monotonic() + pause_s)
            for host, event in following.events(until):
                tasks.dispatch(host, event)
                if tasks.has_left_queue():
                    return
            reasons = _queue_reasons(fleet, run)
            if time.monotonic() >= deadline:
                raise_all(reasons, f"waited {format_duration(wait_s)}")
            texts = {AGE.sub("", each.message) for each in reasons}
            if texts != shown:
                show(reasons)
            shown, pause_s = texts, EXPLAIN_S


def _queue_reasons(fleet: Fleet, run: Run) -> list[TfdeployError]:
    """Return the hosts that do not answer, and for each other one why its first task that lacks
    something is still in the queue."""
    found = status(fleet, run)
    reasons: dict[str, str] = {}
    for task in found.tasks:
        if task.report and task.report.state == QUEUED:
            host = task.placement.host
            if reasons.get(host, HAS_PLACES) == HAS_PLACES:
                reasons[host] = task.report.reason
    return [*found.errors, *(HostError(host, reason) for host, reason in reasons.items())]


def _ready_limit_s(run: Run) -> float:
    """Return the seconds to wait. A task that meets no other at the chief's port is READY after
    ready_timeout_s, as its supervisor decides."""
    training, plan = run.inventory.training, run.plan
    meet = any(frameworks.ready(training, plan, p) == RENDEZVOUS for p in plan.placements)
    return training.ready_timeout_s + (RENDEZVOUS_MARGIN_S if meet else 0.0)


class _Readiness(Listener):
    """The tasks that are waited for, those that may still be in the queue, and the first one that
    has ended badly."""

    def __init__(
        self, run: Run, on_report: Callable[[str, TaskReport], None], *, is_queued: bool
    ) -> None:
        self.waiting = {str(p.task) for p in run.plan.placements}
        self.queued = set(self.waiting) if is_queued else set()
        self.ended: TaskReport | None = None
        self.versions: dict[str, dict[str, str]] = {}
        self._limit_s = _ready_limit_s(run)
        self._deadline = time.monotonic() + self._limit_s
        self._fetching: set[str] = set()
        self._on_report = on_report

    def is_decided(self) -> bool:
        return self.ended is not None or not self.waiting

    def has_left_queue(self) -> bool:
        return self.ended is not None or not self.queued

    @property
    def deadline(self) -> float | None:
        return None if self._fetching else self._deadline

    def on_error(self, error: HostError) -> None:
        if not (self.queued and may_return(error)):
            raise error

    def on_state(self, host: str, report: TaskReport) -> None:
        self._on_report(host, report)
        if report.versions:
            self.versions[host] = report.versions
        if report.state != QUEUED and report.task in self.queued:
            self.queued.discard(report.task)
            self._deadline = time.monotonic() + self._limit_s
        if report.state == STARTING and report.reason == GETS_CHECKPOINTS:
            self._fetching.add(report.task)
        elif report.task in self._fetching:
            self._fetching.discard(report.task)
            self._deadline = time.monotonic() + self._limit_s
        if report.state in (READY, SUCCEEDED):
            self.waiting.discard(report.task)
        elif report.state in ENDED:
            self.ended = report


def _raise_unless_succeeded(fleet: Fleet, run: Run, ended: TaskReport) -> None:
    """Raise why a task ended, unless the chief has succeeded: a short training may be over, and its
    ps stopped, before every task was reported READY."""
    found = status(fleet, run, LOG_LINES)
    chief = found.report(str(run.plan.chief.task))
    if ended.state != STOPPED or not chief or chief.state != SUCCEEDED:
        raise start_failure(found, ended.task)


def _raise_not_ready(fleet: Fleet, run: Run, waiting: set[str]) -> None:
    limit_s = run.inventory.training.ready_timeout_s
    found = status(fleet, run, LOG_LINES)
    late = [task for task in found.tasks if str(task.placement.task) in waiting]
    errors = [*found.errors, *(_not_ready(task, limit_s) for task in late)]
    may_not_listen = any(task.report and not _has_ended_before(task.report) for task in late)
    raise_all(errors, NOT_READY_HINT if may_not_listen else "")


def _not_ready(task: TaskStatus, limit_s: float) -> TaskNotReady:
    placement, report = task.placement, task.report
    if report is None:
        why = "health unknown: its host did not report"
    elif _has_ended_before(report):
        why = escape_line(report.reason)
    else:
        why = f"port {placement.port} is {escape_line(report.health)}"
    message = f"not READY within {limit_s:g} s; {why}"
    log = report.log if report else ()
    return TaskNotReady(str(placement.task), placement.host, message, log=log)


def _has_ended_before(report: TaskReport) -> bool:
    """Return whether the task has been restarted, or waits for that: its reason then says how its
    process ended, and its port says nothing."""
    return bool(report.reason) and (report.restarts > 0 or report.state == BACKOFF)
