"""How a run went: the states of its tasks, and the scalars that it reported, as far as known."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.commands.following import run_end
from tfdeploy.commands.runs import RUNNING, run_result
from tfdeploy.experiments import logs, scalars
from tfdeploy.experiments.logs import NO_LOSSES
from tfdeploy.experiments.training import history
from tfdeploy.experiments.training.history import Change, find_pauses
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.run import made_at
from tfdeploy.shared import records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tfdeploy.commands.status import RunStatus
    from tfdeploy.experiments.logs import LogLosses
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.training.history import Pause
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

UNKNOWN = "unknown"
MAX_LOG_BYTES = 32 << 20


@dataclass(frozen=True)
class Course:
    """`histories` are by task; `known_until` is the time of the newest information about its tasks,
    in seconds since the epoch."""

    run: Run
    histories: Mapping[str, tuple[Change, ...]]
    known_until: float
    scalars: Mapping[str, Series]
    log_losses: LogLosses

    @property
    def label(self) -> str:
        return self.run.name or self.run.id

    @property
    def started_s(self) -> float:
        """Return when its first task started, or else the time in its id: without a history only
        the last state of a task is known."""
        known = [changes[0] for changes in self.histories.values() if changes]
        first = [change.at for change in known if change.state == records.STARTING]
        return min(first, default=_time_of(self.run.id))

    @property
    def duration_s(self) -> float:
        """Return the seconds from its start to the last change of a state, without its pauses; NaN
        if unknown."""
        last = [changes[-1].at for changes in self.histories.values() if changes]
        end = max(last, default=math.nan) if self.result != RUNNING else self.known_until
        return end - self.started_s - sum(pause.end - pause.begin for pause in self.pauses)

    @property
    def pauses(self) -> tuple[Pause, ...]:
        return find_pauses(self.histories[str(self.run.plan.chief.task)])

    @property
    def states(self) -> dict[str, str]:
        """Return the last known state of each task."""
        return {task: c[-1].state if c else UNKNOWN for task, c in self.histories.items()}

    @property
    def result(self) -> str:
        """Return as `tfdeploy runs` does, or "unknown"."""
        known = {task: state for task, state in self.states.items() if state != UNKNOWN}
        chief = str(self.run.plan.chief.task)
        return run_result(known, chief) if chief in known else UNKNOWN


def read(run: Run, status: RunStatus | None) -> Course:
    """Read the run's folder and add what its hosts answered. Raises OSError."""
    now, histories = time.time(), {}
    stopped_s, stopped = run_end.read(run.open(), run.launched)
    for placement in run.plan.placements:
        task = str(placement.task)
        report = status.report(task) if status else None
        file = run.folder / "logs" / f"{placement.task.file_name}.history.jsonl"
        changes = _with_end(history.read(file), stopped_s, stopped.get(task, ""))
        histories[task] = _with_report(changes, report, now)
    answered = [task for task in histories if status and status.report(task)]
    found = scalars.read_events(run.folder / "events")
    log = run.folder / "logs" / f"{run.plan.chief.task.file_name}.log"
    losses = NO_LOSSES if found else logs.parse_losses(read_end(log, MAX_LOG_BYTES))
    return Course(run, histories, now if answered else _collected_at(run), found, losses)


def read_end(log: Path, size: int) -> str:
    """Return the last `size` bytes of a log as text; "" if it was not collected. Raises OSError."""
    if not log.is_file() or log.is_symlink():
        return ""
    with log.open("rb") as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - size))
        return content.read(size).decode(errors="replace")


def _with_end(changes: tuple[Change, ...], at: float, state: str) -> tuple[Change, ...]:
    """Return the changes, with the state in which a stop left the task if they end before it."""
    if not state or (changes and changes[-1].state in records.ENDED):
        return changes
    restarts = changes[-1].restarts if changes else 0
    return (*changes, Change(max(at, changes[-1].at if changes else 0.0), state, restarts))


def _with_report(
    changes: tuple[Change, ...], report: TaskReport | None, now: float
) -> tuple[Change, ...]:
    """Return the changes, with what the host reports now if that is newer than the last one."""
    if report is None or report.state not in history.STATES:
        return changes
    last = changes[-1] if changes else None
    if last and (last.state, last.restarts) == (report.state, report.restarts):
        return changes
    at = max(now - max(report.age_s, 0.0), last.at if last else 0.0)
    reason, cause = escape_line(report.reason), escape_line(report.cause)
    return (*changes, Change(at, report.state, report.restarts, reason, cause))


def _collected_at(run: Run) -> float:
    """Return when logs were last collected; the start of the run if never."""
    folder = run.folder / "logs"
    return folder.stat().st_mtime if folder.is_dir() else _time_of(run.id)


def _time_of(run_id: str) -> float:
    """Return the time in a run's id; NaN if it has none."""
    made = made_at(run_id)
    return made.timestamp() if made else math.nan
