"""Follow a started run to the end of its chief, or to a failure that it does not recover from."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.commands.launching.failure_report import root_cause
from tfdeploy.commands.running.background_collect import BackgroundCollector
from tfdeploy.commands.status import LOG_LINES, status
from tfdeploy.errors import HostError, RunDeleted, TaskError, TfdeployError
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.planning import launch
from tfdeploy.planning.versions import differences
from tfdeploy.shared.outcome import outcome_of, why_stopped
from tfdeploy.shared.records import ENDED, LOST, STOPPED, SUCCEEDED, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.intent import Waiting
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.run import Run
    from tfdeploy.shared.outcome import Result
    from tfdeploy.shared.protocol.reports import LogLines

TICK_S = 0.5
LAST_LINES_S = 2.0  # the lines of a task that failed come from its host, and may be later
# Added to the time that the tasks have to end after their chief.
END_MARGIN_S = 15.0


@dataclass(frozen=True)
class Watcher:
    """Callbacks for what happens while a run is followed."""

    __repr__ = short_repr

    on_report: Callable[[str, TaskReport], None] = lambda host, report: None
    on_lines: Callable[[str, str, list[str]], None] = lambda task, host, lines: None
    on_notes: Callable[[Sequence[TfdeployError]], None] = lambda notes: None
    on_lost: Callable[[HostError], None] = lambda error: None
    on_back: Callable[[str], None] = lambda host: None
    on_collected: Callable[[CollectResult], None] = lambda collected: None
    on_collect_failed: Callable[[TfdeployError], None] = lambda error: None
    on_interruption: Callable[[TfdeployError], None] = lambda error: None
    on_resumed: Callable[[ResumeResult], None] = lambda resumed: None
    waiting: Waiting = lambda: nullcontext(lambda conflicts: None)
    """Returns a context for the time in which a run that is resumed is in the queue, as the one of
    StartWatcher."""


@dataclass(frozen=True)
class RunEnd:
    """How a training ended."""

    __repr__ = short_repr

    exit: int
    """The chief's exit code (128 + n for signal n), or 1 if another task or a host ended it."""
    failure: TfdeployError | None
    """The root cause, if it failed."""
    result: Result
    """How it ended; `ended`: after max_duration_s."""
    reason: str = field(kw_only=True, default="")
    """Why it was stopped, or ""."""
    cut_off: tuple[str, ...] = field(kw_only=True, default=())
    """The workers that were still running when their time after the chief's success was over."""


@dataclass(frozen=True)
class Interruption:
    """A failure that the run does not recover from by itself.

    `hosts` have been silent for too long; if there are none, a supervisor is gone from a host that
    answers.
    """

    hosts: tuple[str, ...]
    error: TfdeployError


def follow(
    fleet: Fleet, run: Run, watcher: Watcher, patience_s: float, lines: int | None = None
) -> RunEnd | Interruption:
    """Follow a started run until its chief has ended, or until a task that it depends on is lost
    permanently. A host counts as lost after `patience_s` of silence, if another host answers. Each
    new checkpoint is fetched. `lines` limits the old lines of each log (None: all).

    Raises HostError if the chief's host refuses the request.
    """
    with (
        BackgroundCollector(
            fleet, run, watcher.on_collected, watcher.on_collect_failed
        ) as collector,
        fleet.follow(run, run.plan.placements, logs=True, lines=lines) as following,
    ):
        progress = _Progress(run, watcher, collector)
        while progress.chief is None and not progress.lost:
            silent = progress.silent_for(patience_s)
            if silent:
                return Interruption(tuple(silent), _silent_hosts(run, silent))
            _take_events(following, progress)
        if progress.chief and progress.chief.state != LOST:
            has_succeeded = progress.chief.state == SUCCEEDED
            limit_s = _linger_s(run) if has_succeeded else LAST_LINES_S
            _wait_for_other_tasks(following, progress, limit_s, patience_s)
    chief = progress.chief
    if chief is None or chief.state == LOST:
        found = status(fleet, run, LOG_LINES)
        if found.outcome.result in ("lost", "unknown"):
            return Interruption((), root_cause(found, progress.lost))
        return _end(found, progress)  # its own disk may be read-only, and others know how it ended
    outcome = outcome_of(chief.task, {chief.task: chief})
    if outcome.exit == 0:
        return RunEnd(0, None, outcome.result, cut_off=progress.cut_off())
    return _end(status(fleet, run, LOG_LINES), progress)


def _end(found: RunStatus, progress: _Progress) -> RunEnd:
    for task in found.tasks:
        if task.report and task.report.state in ENDED and task.report.task in progress.active:
            progress.watcher.on_report(task.placement.host, task.report)
    outcome = found.outcome
    is_bad = outcome.result not in ("succeeded", "ended", "stopped")
    reason = why_stopped(progress.chief.reason) if progress.chief else ""
    return RunEnd(
        outcome.exit, root_cause(found) if is_bad else None, outcome.result, reason=reason
    )


class _Progress(Listener):
    """What is known of a run while it is followed.

    `chief` is the chief's last report, once it has ended; `lost` is the first task that was LOST
    and that the chief depends on; `active` are the tasks that have not ended.
    """

    def __init__(self, run: Run, watcher: Watcher, collector: BackgroundCollector) -> None:
        self.run = run
        self.watcher = watcher
        self.collector = collector
        self.chief: TaskReport | None = None
        self.lost = ""
        self.active = {str(p.task) for p in run.plan.placements}
        self._stopped: list[str] = []
        self._versions: dict[str, dict[str, str]] = {}
        self._has_noted_versions = False
        self._essential = {str(p.task) for p in run.plan.essential}
        self._silent: dict[str, tuple[float, HostError]] = {}
        self._reconnected_at = -math.inf

    def on_back(self, host: str) -> None:
        if self._is_cut_off():
            self._reconnected_at = time.monotonic()
        self._silent.pop(host, None)
        self.watcher.on_back(host)

    def on_lines(self, host: str, log: LogLines) -> None:
        self.watcher.on_lines(log.task, host, log.lines)

    def on_checkpoint(self, name: str) -> None:
        self.collector.announce_checkpoint()

    def on_outputs(self) -> None:
        self.collector.announce_outputs()

    def silent_for(self, patience_s: float) -> dict[str, HostError]:
        """Return the hosts that the run depends on and that have not answered for `patience_s`."""
        essential = {p.host for p in self.run.plan.essential}
        return {h: error for h, error in self._all_silent(patience_s).items() if h in essential}

    def _all_silent(self, patience_s: float) -> dict[str, HostError]:
        """Return the hosts that have not answered for this time; none while the controller is cut
        off. After that each has the whole time again, because they return one by one."""
        before = time.monotonic() - patience_s
        if self._is_cut_off() or self._reconnected_at >= before:
            return {}
        return {host: error for host, (at, error) in self._silent.items() if at < before}

    def _is_cut_off(self) -> bool:
        """Return whether the controller's own network has failed: all hosts except this machine are
        silent."""
        hosts = self.run.plan.hosts
        return len(self._silent) == sum(not self.run.inventory.host(h).is_local for h in hosts)

    def cut_off(self) -> tuple[str, ...]:
        """Return the workers that were stopped because the chief has succeeded."""
        succeeded = self.chief and self.chief.state == SUCCEEDED
        return tuple(self._stopped) if succeeded else ()

    def give_up(self, patience_s: float) -> None:
        """Wait no longer for tasks of hosts that have been silent for this time."""
        silent = self._all_silent(patience_s)
        tasks = {str(p.task) for p in self.run.plan.placements if p.host in silent}
        self.active -= tasks

    def on_error(self, error: HostError) -> None:
        if error.host == self.run.plan.chief.host and not may_return(error):
            again = f"the run continues; follow it again: tfdeploy attach {self.run.flags}"
            raise error.with_hint(error.hint or again)
        self._silent.setdefault(error.host, (time.monotonic(), error))
        if not isinstance(error, RunDeleted):  # it does not return; the chief's host says it, too
            self.watcher.on_lost(error)

    def on_state(self, host: str, report: TaskReport) -> None:
        self.watcher.on_report(host, report)
        self._compare_versions(host, report)
        if report.state not in ENDED:
            return
        self.active.discard(report.task)
        if report.task == str(self.run.plan.chief.task):
            self.chief = report
        if report.state == STOPPED and report.task.startswith("worker:"):
            self._stopped.append(report.task)
        if report.state == LOST and report.task in self._essential:
            self.lost = self.lost or report.task

    def _compare_versions(self, host: str, report: TaskReport) -> None:
        """Note once that tasks can't train together: they may import a framework after READY."""
        if not report.versions or self._has_noted_versions:
            return
        self._versions[host] = report.versions
        training, first = self.run.inventory.training, next(iter(self._versions))
        # With all hosts only once: there may be a thousand.
        if differences({name: self._versions[name] for name in (first, host)}, training)[0]:
            self._has_noted_versions = True
            self.watcher.on_notes(differences(self._versions, training)[0])


def _take_events(following: Following, progress: _Progress) -> None:
    """Take the events of one tick, up to the first sign of the run's end."""
    deadline = time.monotonic() + TICK_S
    for host, event in following.events(deadline):
        progress.dispatch(host, event)
        if progress.chief or progress.lost or time.monotonic() > deadline:
            return
    if time.monotonic() < deadline:  # no host will send another event
        chief = progress.run.plan.chief
        raise TaskError(
            str(chief.task), chief.host, "its host stopped reporting before the task ended"
        )


def _wait_for_other_tasks(
    following: Following, progress: _Progress, limit_s: float, patience_s: float
) -> None:
    """Wait up to `limit_s` for the tasks that end by themselves after the chief; not for those of
    hosts that have been silent for `patience_s`."""
    deadline = time.monotonic() + limit_s
    while progress.active and time.monotonic() < deadline:
        tick = min(deadline, time.monotonic() + TICK_S)
        for host, event in following.events(tick):
            progress.dispatch(host, event)
            if not progress.active or time.monotonic() > tick:
                break
        else:
            if time.monotonic() < tick:  # no host will send another event
                return
        progress.give_up(patience_s)


def _linger_s(run: Run) -> float:
    """Return how long other tasks may run after the chief has succeeded."""
    if run.inventory.trials.points:  # no slot has one any more
        return END_MARGIN_S
    training = run.inventory.training
    workers_s = launch.stragglers_s(training, run.plan)
    evaluates = any(p.task.job == "evaluator" for p in run.plan.placements)
    evaluator_s = training.evaluator_grace_s if evaluates else 0.0
    return END_MARGIN_S + max(math.inf if workers_s is None else workers_s, evaluator_s)


def _silent_hosts(run: Run, silent: dict[str, HostError]) -> TfdeployError:
    flags = " ".join(f"--without {host}" for host in silent)
    first = next(iter(silent.values()))
    return first.with_hint(f"to continue without it: tfdeploy resume {run.flags} {flags}")
