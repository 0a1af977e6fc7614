"""Gather what is known of a run: from its folder on the controller, and from hosts that answer."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.agent import records
from tfdeploy.commands.runs import RUNNING, run_result
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments import scalars
from tfdeploy.experiments.run_report import files, history, log_losses
from tfdeploy.experiments.run_report.history import Change
from tfdeploy.experiments.run_report.log_losses import NO_LOSSES
from tfdeploy.experiments.run_report.redact import Redactor
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.agent.records import TaskReport
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.experiments.run_report.files import Results
    from tfdeploy.experiments.run_report.log_losses import LogLosses
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.run import Run

UNKNOWN = "unknown"
MAX_ERRORS = 10


@dataclass(frozen=True)
class RunFacts:
    """What is known of one run.

    `status` is None if the hosts were not asked. `histories` and `logs` are by task; `known_until`
    is the time of the newest information about its tasks, in seconds since the epoch. `previous` is
    the run before it. `missing` says what the report lacks and how to get it.
    """

    run: Run
    status: RunStatus | None
    histories: Mapping[str, tuple[Change, ...]]
    known_until: float
    scalars: Mapping[str, Series]
    log_losses: LogLosses
    results: Results
    logs: Mapping[str, tuple[str, ...]]
    previous: Run | None
    missing: tuple[str, ...]
    redact: Redactor

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
        """Return the seconds from its start to the last change of a state; NaN if unknown."""
        last = [changes[-1].at for changes in self.histories.values() if changes]
        end = max(last, default=math.nan) if self.result != RUNNING else self.known_until
        return end - self.started_s

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


def gather(run: Run, status: RunStatus | None) -> RunFacts:
    """Read the run's folder and add what its hosts answered. Raises RunError if a file that should
    be read can't be."""
    try:
        return _gather(run, status)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None


def _gather(run: Run, status: RunStatus | None) -> RunFacts:
    redactor, now = Redactor(run.inventory, os.environ), time.time()
    histories, logs = {}, {}
    for placement in run.plan.placements:
        task = str(placement.task)
        report = status.report(task) if status else None
        file = run.folder / "logs" / f"{placement.task.file_name}.history.jsonl"
        histories[task] = _with_report(history.read(file), report, now)
        tail = files.log_tail(run, placement.task.file_name)
        live = [files.clean_line(line) for line in report.log] if report else []
        logs[task] = tuple(redactor(line) for line in live or tail)
    found_scalars = scalars.read_events(run.folder / "events")
    answered = [task for task in histories if status and status.report(task)]
    return RunFacts(
        run, status, histories,
        now if answered else _collected_at(run),
        found_scalars, NO_LOSSES if found_scalars else log_losses.parse(files.chief_log(run)),
        files.results(run), logs, _previous(run),
        tuple(_missing(run, status, histories, bool(found_scalars))),
        redactor,
    )  # fmt: skip


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
    with suppress(ValueError):
        return datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    return math.nan


def _previous(run: Run) -> Run | None:
    """Return the run before this one that was started from the same hosts file."""
    older = [file.parent for file in run.folder.parent.glob("*/run.json")]
    for folder in sorted((each for each in older if each.name < run.id), reverse=True):
        with suppress(OSError, TfdeployError):
            found = runs.read_folder(folder)
            if found.inventory.file.name == run.inventory.file.name and not found.of_sweep:
                return found
    return None


def _missing(
    run: Run,
    status: RunStatus | None,
    histories: Mapping[str, tuple[Change, ...]],
    has_scalars: bool,
) -> Iterator[str]:
    collect = f"tfdeploy collect {run.flags}"
    folder = run.folder
    if not (folder / "logs").is_dir():
        yield f"Logs, events and histories were not collected yet: {collect}"
    elif not has_scalars:
        yield "No event files: the run wrote none, or they were not collected."
    without = [task for task, changes in histories.items() if not changes]
    if without:
        yield f"No history of the states of {', '.join(without)}: it was not collected."
    if any(changes and changes[-1].state not in records.ENDED for changes in histories.values()):
        yield "The run had not ended when this report was written, or its end was not collected."
    if any(change.lost for changes in histories.values() for change in changes):
        yield "Some changes of states were not recorded, because a host's disk was full."
    if status is None:
        yield "The hosts were not asked: this is what the controller has."
    errors = status.errors if status else ()
    for error in errors[:MAX_ERRORS]:
        yield f"A host gave no report: {escape_line(str(error))}"
    if len(errors) > MAX_ERRORS:
        yield f"{len(errors) - MAX_ERRORS} more hosts gave no report."
