"""Measure one cell of a sweep: watch a run that is READY for a while, then stop it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring import scalars
from tfdeploy.branches.measuring.scalars import LogSteps
from tfdeploy.branches.measuring.speed import results
from tfdeploy.branches.measuring.speed.results import ENDED, MEASURED, Result
from tfdeploy.commands.collect import collect_events_and_logs
from tfdeploy.commands.launching.failure_report import root_cause
from tfdeploy.commands.signals import delay_signals
from tfdeploy.commands.status import LOG_LINES, status
from tfdeploy.commands.stop import stop
from tfdeploy.formatting.humanize import format_count
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.shared.records import ENDED as TASK_ENDED
from tfdeploy.shared.records import FAILED, LOST, SUCCEEDED, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.branches.measuring.scalars import Series
    from tfdeploy.branches.measuring.speed.results import Cell
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.errors import HostError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import LogLines

TICK_S = 1.0


def measure(fleet: Fleet, run: Run, cell: Cell, seconds: float) -> Result:
    """Watch the run for `seconds` after its first step, or until its chief ends; stop it, and
    collect its events and logs. Steps are read from the events, or if these have too few from the
    chief's log; then the time of a step is when its line arrived.

    Raises HostError, and KeyboardInterrupt at Ctrl-C, after everything was stopped.
    """
    watch = _Watch(fleet, run)
    watch_then_stop(lambda: watch.watch(seconds), lambda: stop(fleet, run))
    collect_events_and_logs(fleet, run)
    if watch.failed_task:
        reason = failure_reason(status(fleet, run, LOG_LINES), watch.failed_task)
        if reason:
            return Result(cell, run.id, results.FAILED, reason)
    events = scalars.step_times(scalars.read_events(run.folder / "events"))
    result = rate_result(cell, run.id, events, watch.points)
    if not watch.is_over:
        return result
    reason = ended_reason(watch.ended_task or watch.failed_task, watch.seconds, seconds)
    return replace(result, result=ENDED, reason=reason)


def ended_reason(task: str, watched_s: float, seconds: float) -> str:
    """Return why a run is not compared in which a task ended by itself: its speed is that of
    another window than the speeds of other runs, or of fewer workers."""
    return (
        f"{task} ended after {watched_s:.0f} of {seconds:g} s: give it more steps, or lower "
        "--seconds"
    )


def watch_then_stop(watch: Callable[[], None], stop: Callable[[], object]) -> None:
    """Call both. Ctrl-C ends the watching; while the run is stopped, it waits."""
    try:
        watch()
    finally:
        with delay_signals(raise_after=True):
            stop()


def failure_reason(run_status: RunStatus, failed_task: str) -> str:
    """Return why the task failed; "" if the chief succeeded: then other tasks may fail because the
    chief is gone."""
    chief = run_status.report(str(run_status.run.plan.chief.task))
    if chief and chief.state == SUCCEEDED:
        return ""
    return str(root_cause(run_status, failed_task))


def rate_result(cell: Cell, run_id: str, events: Series, log: Series) -> Result:
    """Return the result of a run that did not fail: its rate, from its events or else from its log,
    or why it has none."""
    rate = results.rate(events) or results.rate(log, "log")
    if rate:
        return Result(cell, run_id, MEASURED, "", rate)
    steps = len(events) or len(log)
    if steps:
        reason = f"reported only {format_count(steps, 'step')}: raise --seconds"
    else:
        reason = "its chief's events have no step, and its log has no line such as step = 120"
    return Result(cell, run_id, results.FAILED, reason)


class _Watch(Listener):
    """What was observed of a run. `failed_task` is the first task that failed, `ended_task` the
    first that ended otherwise; after either, it `is_over`. `points` are the steps in the chief's
    log; `seconds` is how long it was watched after its first sign of training."""

    def __init__(self, fleet: Fleet, run: Run) -> None:
        self.failed_task = self.ended_task = ""
        self.seconds = 0.0
        self._log = LogSteps()
        self._fleet, self._run = fleet, run
        self._chief = str(run.plan.chief.task)
        self._trains = False

    @property
    def points(self) -> Series:
        return tuple(self._log.points)

    @property
    def is_over(self) -> bool:
        return bool(self.ended_task or self.failed_task)

    def watch(self, seconds: float) -> None:
        """Watch for `seconds` after the first sign of training. If there is none within `seconds`,
        watch all the same: events may stay in a buffer until the session ends."""
        run, limit = self._run, time.monotonic() + seconds
        with self._fleet.follow(run, run.plan.placements, logs=True, lines=0) as following:
            while not self.is_over and not self._has_first_step() and time.monotonic() < limit:
                self._handle_events(following)
            begin = time.monotonic()
            while not self.is_over and time.monotonic() < begin + seconds:
                self._handle_events(following, begin + seconds)
            self.seconds = time.monotonic() - begin

    def _has_first_step(self) -> bool:
        if not self._trains:
            chief = status(self._fleet, self._run).report(self._chief)
            self._trains = chief is not None and chief.step is not None
        return self._trains

    def _handle_events(self, following: Following, limit: float | None = None) -> None:
        """Handle the events of one tick."""
        deadline = time.monotonic() + TICK_S
        deadline = min(deadline, limit or deadline)
        for host, event in following.events(deadline):
            self.dispatch(host, event)
            if self.is_over or time.monotonic() > deadline:
                return
        time.sleep(max(0.0, deadline - time.monotonic()))  # no host sends any more events

    def on_error(self, error: HostError) -> None:
        if not may_return(error):
            raise error

    def on_checkpoint(self, name: str) -> None:
        self._trains = True

    def on_lines(self, host: str, log: LogLines) -> None:
        if log.task == self._chief:
            self._trains = self._log.read(log.lines, time.time()) or self._trains

    def on_state(self, host: str, report: TaskReport) -> None:
        if report.state in (FAILED, LOST):
            self.failed_task = self.failed_task or report.task
        elif report.state in TASK_ENDED:
            self.ended_task = self.ended_task or report.task
