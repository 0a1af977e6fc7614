"""Measure one cell of a sweep: watch a run that is READY for a while, then stop it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.agent.protocol.reports import Load as HostLoad
from tfdeploy.agent.protocol.reports import LogLines, MeasureLoad, NewCheckpoint, StateChange
from tfdeploy.agent.records import ENDED, FAILED, LOST, SUCCEEDED, TaskReport
from tfdeploy.commands.collect import collect_events_and_logs
from tfdeploy.commands.following.failure_report import root_cause
from tfdeploy.commands.following.signals import delay_signals
from tfdeploy.commands.status import status
from tfdeploy.commands.stop import stop
from tfdeploy.errors import HostError
from tfdeploy.experiments import scalars, speedup
from tfdeploy.experiments.scalars import Point
from tfdeploy.experiments.speedup import MEASURED, Load, Result
from tfdeploy.formatting.humanize import format_count
from tfdeploy.hosts.following import may_return

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from tfdeploy.agent.protocol.reports import RunEvent
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.speedup import Cell
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Event, Following
    from tfdeploy.run import Run

SAMPLE_EVERY_S = 1.0
LOG_LINES = 20  # in the report of a failure


def measure(
    fleet: Fleet, run: Run, cell: Cell, seconds: float, pattern: re.Pattern[str] | None
) -> Result:
    """Watch the run for `seconds` after its first step, or until its chief ends; stop it, and
    collect its events and logs. Steps are read from the events, or with `pattern` from the chief's
    log; then the time of a step is when its line arrived.

    Raises HostError, and KeyboardInterrupt at Ctrl-C, after everything was stopped.
    """
    watch = _Watch(fleet, run, pattern)
    watch_then_stop(lambda: watch.watch(seconds), lambda: stop(fleet, run))
    collect_events_and_logs(fleet, run)
    if watch.failed_task:
        reason = failure_reason(status(fleet, run, LOG_LINES), watch.failed_task)
        if reason:
            return Result(cell, run.id, speedup.FAILED, reason)
    events = scalars.step_times(scalars.read_events(run.folder / "events"))
    steps = tuple(watch.points) if pattern else events
    return rate_result(cell, run.id, steps, watch.load, pattern)


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


def rate_result(
    cell: Cell, run_id: str, steps: Series, load: Load, pattern: re.Pattern[str] | None
) -> Result:
    """Return the result of a run that did not fail: its rate, or why it has none."""
    rate = speedup.rate(steps)
    if rate:
        return Result(cell, run_id, MEASURED, "", rate, load)
    if steps:
        reason = f"reported only {format_count(len(steps), 'step')}: raise --seconds"
    elif pattern:
        reason = f'no line of its chief\'s log matches "{pattern.pattern}": see tfdeploy logs'
    else:
        reason = "its chief's events have no step: pass --pattern to read its log"
    return Result(cell, run_id, speedup.FAILED, reason, load=load)


class _Watch:
    """What was observed of a run. `failed_task` is the first task that failed; `points` are the
    steps in the chief's log."""

    def __init__(self, fleet: Fleet, run: Run, pattern: re.Pattern[str] | None) -> None:
        self.failed_task = ""
        self.points: list[Point] = []
        self._fleet, self._run, self._pattern = fleet, run, pattern
        self._chief = str(run.plan.chief.task)
        self._trains = self._chief_ended = False
        self._samples: dict[str, list[HostLoad]] = {host: [] for host in run.plan.hosts}

    @property
    def load(self) -> Load:
        return speedup.load(self._samples)

    def watch(self, seconds: float) -> None:
        """Watch for `seconds` after the first sign of training. If there is none within `seconds`,
        watch all the same: events may stay in a buffer until the session ends."""
        logs = self._pattern is not None
        run, limit = self._run, time.monotonic() + seconds
        with self._fleet.follow(run, run.plan.placements, logs=logs, lines=0) as following:
            while not self._is_over and not self._has_first_step() and time.monotonic() < limit:
                self._handle_events(following)
            limit = time.monotonic() + seconds
            while not self._is_over and time.monotonic() < limit:
                self._sample_load()
                self._handle_events(following, limit)
            if not self._is_over:
                self._sample_load()

    @property
    def _is_over(self) -> bool:
        return self._chief_ended or bool(self.failed_task)

    def _has_first_step(self) -> bool:
        if not self._trains and not self._pattern:
            chief = status(self._fleet, self._run).report(self._chief)
            self._trains = chief is not None and chief.step is not None
        return self._trains

    def _handle_events(self, following: Following[RunEvent], limit: float | None = None) -> None:
        """Handle the events that come until the next sample is due."""
        deadline = time.monotonic() + SAMPLE_EVERY_S
        deadline = min(deadline, limit or deadline)
        for host, event in following.events(deadline):
            self._handle_event(host, event)
            if self._is_over or time.monotonic() > deadline:
                return
        time.sleep(max(0.0, deadline - time.monotonic()))  # no host sends any more events

    def _handle_event(self, host: str, event: Event) -> None:
        if isinstance(event, HostError):
            if not may_return(event):
                raise event
        elif isinstance(event, NewCheckpoint):
            self._trains = self._trains or not self._pattern
        elif isinstance(event, LogLines) and self._pattern and event.task == self._chief:
            self._read_lines(self._pattern, event.lines)
        elif isinstance(event, StateChange):
            self._handle_report(event.state)

    def _handle_report(self, report: TaskReport) -> None:
        if report.state in (FAILED, LOST):
            self.failed_task = self.failed_task or report.task
        elif report.task == self._chief:
            self._chief_ended = report.state in ENDED

    def _read_lines(self, pattern: re.Pattern[str], lines: list[str]) -> None:
        """Add a point for the first line of each step; other lines may repeat the step."""
        now = time.time()
        for point in scalars.parse_log("\n".join(lines), pattern):
            if not self.points or point.step > self.points[-1].step:
                self.points.append(Point(point.step, now, None))
        self._trains = bool(self.points)

    def _sample_load(self) -> None:
        """Ask each host for its load. A host that does not answer is left out of this sample."""
        request = MeasureLoad(self._run.inventory.project, self._run.id)
        outcomes = self._fleet.outcomes(self._samples, lambda agent: agent.ask(request))
        for host, sample in outcomes.items():
            if isinstance(sample, HostLoad):
                self._samples[host].append(sample)
