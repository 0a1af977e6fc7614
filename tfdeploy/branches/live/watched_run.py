"""`tfdeploy watch`: a run as its hosts report it in samples. Watching changes nothing.

Pure, except for `is_collected`: the clock of the controller is an argument.
Clocks of hosts are only compared with themselves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tfdeploy.commands.watching.history import (
    TrainingHistory,
    position_of,
    slow_tasks,
)
from tfdeploy.errors import OutdatedRecord, TfdeployError
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.results import run_folder
from tfdeploy.shared.outcome import Outcome, outcome_of
from tfdeploy.shared.records import ENDED

if TYPE_CHECKING:
    from tfdeploy.errors import HostError
    from tfdeploy.hosts.events import Event
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.hosts.following import Following
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import GpuUse, HostSample, HostUse
    from tfdeploy.shared.records import TaskReport

FIRST_LINES = 50  # of each log
MAX_LINES = 1000  # of each log that are kept


class Ending(Enum):
    """Why the watching has ended: the user quit, or a signal came, or it is over, because another
    command has started the run again, or because the run has ended."""

    QUIT = "quit"
    INTERRUPTED = "interrupted"
    OVER = "over"


@dataclass
class WatchedTask:
    """One task: its last report, and what its processes use. `cpu` is in cores, None before the
    second sample. `log` has the newest lines, `lines` counts all that came."""

    placement: Placement
    report: TaskReport | None = None
    cpu: float | None = None
    used_bytes: int = 0
    cpu_s: float = 0.0
    reported_at: float = 0.0
    lines: int = 0
    log: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_LINES))

    @property
    def has_ended(self) -> bool:
        return self.report is not None and self.report.state in ENDED

    def age_s(self, now: float) -> float:
        """Return how long the task has been in its state."""
        return self.report.age_s + now - self.reported_at if self.report else 0.0


@dataclass
class WatchedHost:
    """One host. `cpu` is the part of its cores that is busy; `received` and `sent` are bytes per
    second. `error` is set while it is away, `away_since` with the controller's clock."""

    name: str
    use: HostUse | None = None
    cpu: float | None = None
    received: float | None = None
    sent: float | None = None
    error: TfdeployError | None = None
    away_since: float = 0.0
    gave_up: bool = False

    def gpus(self, indices: tuple[int, ...]) -> list[GpuUse]:
        return [gpu for gpu in (self.use.gpus if self.use else []) if gpu.index in indices]


class WatchedRun(Listener):
    """A run and the state of all of its tasks and hosts, as their hosts report it.

    `training` is the newest report that says how far the training is: the chief's, or that of the
    first task that says anything. `history` is what the same task reported before.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tasks = {str(p.task): WatchedTask(p) for p in run.plan.placements}
        self.hosts = {name: WatchedHost(name) for name in run.plan.hosts}
        self.history = TrainingHistory()
        self.checkpoint = ""
        self._checkpoint_at = 0.0
        self.training: TaskReport | None = None
        self._trainer = ""
        self._now = 0.0

    def take(self, host: str, event: Event, now: float) -> None:
        """Take what a host sent, or that it is lost or back."""
        self._now = now
        self.dispatch(host, event)

    def on_sample(self, host: str, sample: HostSample) -> None:
        self.on_back(host)
        self._take_sample(self.hosts[host], sample, self._now)

    def on_back(self, host: str) -> None:
        self.hosts[host].error = None

    def on_error(self, error: HostError) -> None:
        host = self.hosts[error.host]
        if host.error is None:
            host.away_since = self._now
        host.error = error
        host.gave_up = not may_return(error)

    @property
    def chief(self) -> WatchedTask:
        return self.tasks[str(self.run.plan.chief.task)]

    @property
    def has_ended(self) -> bool:
        """Return whether every task has ended, as far as hosts report that are not given up. After
        the chief's end a host that is away is not waited for."""
        away = self.chief.has_ended
        hosts = {h.name for h in self.hosts.values() if not (h.gave_up or (away and h.error))}
        tasks = [task for task in self.tasks.values() if task.placement.host in hosts]
        return bool(tasks) and all(task.has_ended for task in tasks)

    @property
    def slow(self) -> list[HostError]:
        """Return what is slower than the rest of the run, in sentences with figures."""
        return slow_tasks((task.placement, task.report) for task in self.tasks.values())

    @property
    def exit_code(self) -> int:
        """Return the exit code of a run that has ended, as `attach` does."""
        return self.outcome.exit

    @property
    def outcome(self) -> Outcome:
        """Return how a run ended that has ended."""
        reports = {name: task.report for name, task in self.tasks.items()}
        return outcome_of(str(self.run.plan.chief.task), reports, self.run.plan.needed)

    @property
    def errors(self) -> list[TfdeployError]:
        """Return the errors of the hosts that do not report now."""
        return [host.error for host in self.hosts.values() if host.error]

    @property
    def outdated(self) -> OutdatedRecord | None:
        """Return the error of a host that has a newer record of the run."""
        return next((each for each in self.errors if isinstance(each, OutdatedRecord)), None)

    @property
    def continues(self) -> bool:
        """Return whether a host has reported a task that has not ended."""
        return any(task.report and not task.has_ended for task in self.tasks.values())

    @property
    def is_collected(self) -> bool:
        """Return whether the controller has the results that the run had at its end."""
        return run_folder.has_end_of(self.run, self.checkpoint)

    def checkpoint_age_s(self, now: float) -> float:
        return max(0.0, now - self._checkpoint_at)

    def _take_sample(self, host: WatchedHost, sample: HostSample, now: float) -> None:
        before, host.use = host.use, sample.host
        elapsed_s = sample.host.at - before.at if before else 0.0
        if before and elapsed_s > 0:
            busy_s = sample.host.busy_s - before.busy_s
            host.cpu = min(1.0, max(0.0, busy_s) / elapsed_s / max(1, sample.host.cpus))
            host.received = max(0.0, (sample.host.received - before.received) / elapsed_s)
            host.sent = max(0.0, (sample.host.sent - before.sent) / elapsed_s)
        for use in sample.tasks:
            task = self.tasks[use.report.task]
            task.cpu = max(0.0, use.cpu_s - task.cpu_s) / elapsed_s if elapsed_s > 0 else None
            task.report, task.cpu_s, task.used_bytes = use.report, use.cpu_s, use.used_bytes
            task.reported_at = now
            task.placement = task.placement.with_gpus(use.report.gpus)
        for log in sample.logs:
            self.tasks[log.task].log.extend(log.lines)
            self.tasks[log.task].lines += len(log.lines)
        if sample.checkpoint is not None and host.name == self.run.plan.chief.host:
            self.checkpoint = sample.checkpoint
            self._checkpoint_at = now - (sample.checkpoint_age_s or 0.0)
        self._take_training([use.report for use in sample.tasks], now)

    def _take_training(self, reports: list[TaskReport], now: float) -> None:
        saying = {report.task: report for report in reports if position_of(report)}
        chief = str(self.run.plan.chief.task)
        preferred = [task for task in (chief, self._trainer) if task in saying]
        if not saying or (self._trainer and not preferred):
            return
        trainer = (preferred or list(saying))[0]
        if trainer != self._trainer:
            self._trainer, self.history = trainer, TrainingHistory()
        self.training = saying[trainer]
        self.history.add(saying[trainer], now)


def follow_samples(fleet: Fleet, run: Run) -> Following:
    """Sample every host of the run until all of its tasks have ended. The first sample has the last
    FIRST_LINES lines of each log."""
    return fleet.follow(run, run.plan.placements, samples=True, lines=FIRST_LINES)
