"""Gather what is known of a run: from its folder on the controller, and from hosts that answer."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.branches.measuring import history, scalars
from tfdeploy.branches.measuring.history import Change, find_pauses
from tfdeploy.branches.measuring.run_report import over_time
from tfdeploy.commands.runs import run_result
from tfdeploy.config.redact import Redactor
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.formatting.humanize import escape_control, escape_line
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.shared import filesystem, pace, records
from tfdeploy.shared.outcome import RUNNING
from tfdeploy.shared.pace import TaskPace
from tfdeploy.shared.protocol.message import parse_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfdeploy.branches.measuring.history import Pause
    from tfdeploy.branches.measuring.run_report.over_time import GpuSample
    from tfdeploy.branches.measuring.scalars import Series
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.commands.trials import TrialsResult
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

UNKNOWN = "unknown"
MAX_ERRORS = 10
FOLDERS = ("checkpoints", "outputs", "fetched")
MAX_FILES = 200
MAX_LOG_BYTES = 32 << 20
TAIL_BYTES = 1 << 16
TAIL_LINES = 30
MAX_LINE = 400


@dataclass(frozen=True)
class RunFacts:
    """What is known of one run.

    `status` is None if the hosts were not asked. `histories` and `logs` are by task, `gpus` by task
    with GPUs; `paces` are of the whole run; `known_until` is the time of the newest information
    about the tasks, in seconds since the epoch. `previous` is the run before it. `trials` are its
    trials if it has any; then it has no `scalars` and `log_losses`, because each trial has its own.
    `missing` says what the report lacks and how to get it.
    """

    run: Run
    status: RunStatus | None
    histories: Mapping[str, tuple[Change, ...]]
    known_until: float
    scalars: Mapping[str, Series]
    log_losses: Mapping[str, Series]
    results: Results
    logs: Mapping[str, tuple[str, ...]]
    gpus: Mapping[str, tuple[GpuSample, ...]]
    paces: list[TaskPace]
    previous: Run | None
    redact: Redactor
    trials: TrialsResult | None = None

    @property
    def label(self) -> str:
        return self.run.name or self.run.id

    @property
    def started_s(self) -> float:
        return _started_s(self.run, self.histories)

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
        known = {
            task: changes[-1].task_state for task, changes in self.histories.items() if changes
        }
        return run_result(known, str(self.run.plan.chief.task), self.run.plan.needed)

    @property
    def missing(self) -> tuple[str, ...]:
        return (*_missing(self), *_missing_gpu_use(self))


def gather(run: Run, status: RunStatus | None, trials: TrialsResult | None = None) -> RunFacts:
    """Read the run's folder and add what its hosts answered. Raises RunError if a file that should
    be read can't be."""
    try:
        return _gather(run, status, trials)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None


def _gather(run: Run, status: RunStatus | None, trials: TrialsResult | None) -> RunFacts:
    redactor, now = Redactor(run.inventory, os.environ), time.time()
    histories, logs_ = {}, {}
    for placement in run.plan.placements:
        task, name = str(placement.task), placement.task.file_name
        report = status.report(task) if status else None
        changes = history.read(run.folder / "logs" / f"{name}.history.jsonl")
        histories[task] = _with_report(changes, report, now)
        live = [clean_line(line) for line in report.log] if report else []
        logs_[task] = tuple(redactor(line) for line in live or log_tail(run, name))
    is_live = status and any(map(status.report, histories))
    found = {} if trials else scalars.read_events(run.folder / "events")
    log = run.folder / "logs" / f"{run.plan.chief.task.file_name}.log"
    has_losses = not found and not trials
    return RunFacts(
        run=run,
        status=status,
        histories=histories,
        known_until=now if is_live else _collected_at(run),
        scalars=found,
        log_losses=scalars.parse_losses(_read_end(log, MAX_LOG_BYTES)) if has_losses else {},
        results=results(run),
        logs=logs_,
        gpus=_gpu_use(run, _started_s(run, histories), now),
        paces=[*_paces(run)],
        previous=_previous(run),
        redact=redactor,
        trials=trials and _without_secrets(trials, redactor),
    )


def _started_s(run: Run, histories: Mapping[str, tuple[Change, ...]]) -> float:
    """Return when the first task started, or else the time in the run's id: without a history only
    the last state of a task is known."""
    known = [changes[0] for changes in histories.values() if changes]
    first = [change.at for change in known if change.state == records.STARTING]
    return min(first, default=_time_of(run.id))


def _without_secrets(found: TrialsResult, redact: Redactor) -> TrialsResult:
    shown = [{name: redact(text) for name, text in t.parameters.items()} for t in found.trials]
    each = zip(found.trials, shown, strict=True)
    return replace(found, trials=tuple(replace(trial, parameters=own) for trial, own in each))


def _gpu_use(run: Run, started_s: float, now: float) -> dict[str, tuple[GpuSample, ...]]:
    folder = run.folder / "logs"
    tasks = [placement.task for placement in run.plan.placements if placement.gpus]
    return {
        str(task): over_time.read_gpus(folder / f"{task.file_name}.gpus.jsonl", started_s, now)
        for task in tasks
    }


def _paces(run: Run) -> Iterator[TaskPace]:
    """Yield the pace of each task whose counters were collected."""
    for placement in run.plan.placements:
        file = run.folder / "logs" / f"{placement.task.file_name}.pace.jsonl"
        lines = [*parse_lines(pace.Counters, b"\n".join(history.read_lines(file)))]
        found = pace.overall(lines)
        if found:
            yield TaskPace(str(placement.task), placement.host, found)


def _previous(run: Run) -> Run | None:
    """Return the last run before this one that was started from the same hosts file and, as far as
    its history was collected, has succeeded; if none has, the run before."""
    base, newest = run.folder.parent, None
    for run_id in reversed([*takewhile(lambda each: each != run.id, runs.run_ids(base))]):
        with suppress(OSError, TfdeployError):
            found = runs.read_folder(base / run_id)
            if found.inventory.file.name == run.inventory.file.name and not found.by_id_only:
                name = f"{found.plan.chief.task.file_name}.history.jsonl"
                changes = history.read(found.folder / "logs" / name)
                if changes and changes[-1].state == records.SUCCEEDED:
                    return found
                newest = newest or found
    return newest


def _missing(facts: RunFacts) -> Iterator[str]:
    run, histories, status = facts.run, facts.histories, facts.status
    if not (run.folder / "logs").is_dir():
        collect = f"tfdeploy collect {run.flags}"
        yield f"Logs, events and histories were not collected yet: {collect}"
    elif not facts.scalars and not facts.trials:
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


def _missing_gpu_use(facts: RunFacts) -> Iterator[str]:
    without = [task for task, samples in facts.gpus.items() if not samples]
    if without and (facts.run.folder / "logs").is_dir():
        of_tasks = "" if len(without) == len(facts.gpus) else f" of {', '.join(without)}"
        yield f"No use of GPUs{of_tasks}: nvidia-smi gave no answer, or it was not collected."


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
    made = runs.made_at(run_id)
    return made.timestamp() if made else math.nan


@dataclass(frozen=True)
class Results:
    """The first MAX_FILES results with their sizes, and the number and size of all. Paths are
    relative to the run's folder."""

    files: tuple[tuple[str, int], ...]
    count: int
    bytes: int


def results(run: Run) -> Results:
    """Return the checkpoints and outputs on the controller. Raises OSError."""
    files = [file for folder in FOLDERS for file in _regular_files(run.folder / folder)]
    sizes = [file.stat().st_size for file in files]
    names = [escape_line(file.relative_to(run.folder).as_posix()) for file in files[:MAX_FILES]]
    return Results(tuple(zip(names, sizes, strict=False)), len(files), sum(sizes))


def log_tail(run: Run, task_file_name: str) -> tuple[str, ...]:
    """Return the last lines of a collected log; none if it was not collected."""
    text = _read_end(run.folder / "logs" / f"{task_file_name}.log", TAIL_BYTES)
    return tuple(clean_line(line) for line in text.split("\n")[-TAIL_LINES - 1 :] if line)


def _read_end(log: Path, size: int) -> str:
    """Return the last `size` bytes of a log as text; "" if it was not collected."""
    data = b"" if log.is_symlink() else filesystem.read_end(str(log), size)
    return data.decode(errors="replace")


def clean_line(line: str) -> str:
    """Return what a terminal would finally show of a line, without control characters."""
    text = escape_control(plain_text(line[: 4 * MAX_LINE].rstrip("\r")))
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


def _regular_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not path.is_symlink() and not is_hidden:
            yield path
