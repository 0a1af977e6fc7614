"""Gather what is known of a run: from its folder on the controller, and from hosts that answer."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments.run_report import gpus
from tfdeploy.experiments.run_report.redact import Redactor
from tfdeploy.experiments.training import course
from tfdeploy.experiments.training.course import Course
from tfdeploy.formatting.humanize import escape_control, escape_line
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.shared import filesystem, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tfdeploy.commands.status import RunStatus
    from tfdeploy.experiments.run_report.over_time import GpuSample
    from tfdeploy.experiments.training.history import Change
    from tfdeploy.run import Run

MAX_ERRORS = 10
FOLDERS = ("checkpoints", "outputs", "fetched")
MAX_FILES = 200
MAX_HASHED_BYTES = 8_000_000_000  # a file of this size takes some seconds
TAIL_BYTES = 1 << 16
TAIL_LINES = 30
MAX_LINE = 400


@dataclass(frozen=True)
class RunFacts(Course):
    """What is known of one run.

    `status` is None if the hosts were not asked. `logs` are by task, `gpus` by task with GPUs.
    `previous` is the run before it. `missing` says what the report lacks and how to get it.
    """

    status: RunStatus | None
    results: Results
    logs: Mapping[str, tuple[str, ...]]
    gpus: Mapping[str, tuple[GpuSample, ...]]
    previous: Run | None
    missing: tuple[str, ...]
    redact: Redactor


def gather(run: Run, status: RunStatus | None) -> RunFacts:
    """Read the run's folder and add what its hosts answered. Raises RunError if a file that should
    be read can't be."""
    try:
        return _gather(run, status)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None


def _gather(run: Run, status: RunStatus | None) -> RunFacts:
    redactor, known = Redactor(run.inventory, os.environ), course.read(run, status)
    logs, gpus = {}, _gpu_use(run, known.started_s)
    for placement in run.plan.placements:
        task = str(placement.task)
        report = status.report(task) if status else None
        tail = log_tail(run, placement.task.file_name)
        live = [clean_line(line) for line in report.log] if report else []
        logs[task] = tuple(redactor(line) for line in live or tail)
    return RunFacts(
        **vars(known),
        status=status,
        results=results(run),
        logs=logs,
        gpus=gpus,
        previous=_previous(run),
        missing=(
            *_missing(run, status, known.histories, bool(known.scalars)),
            *_missing_gpu_use(run, gpus),
        ),
        redact=redactor,
    )


def _gpu_use(run: Run, started_s: float) -> dict[str, tuple[GpuSample, ...]]:
    folder, now = run.folder / "logs", time.time()
    tasks = [placement.task for placement in run.plan.placements if placement.gpus]
    return {
        str(task): gpus.read(folder / f"{task.file_name}.gpus.jsonl", started_s, now)
        for task in tasks
    }


def _previous(run: Run) -> Run | None:
    """Return the run before this one that was started from the same hosts file."""
    base = run.folder.parent
    for run_id in reversed([each for each in runs.run_ids(base) if each < run.id]):
        with suppress(OSError, TfdeployError):
            found = runs.read_folder(base / run_id)
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


def _missing_gpu_use(run: Run, gpus: Mapping[str, tuple[GpuSample, ...]]) -> Iterator[str]:
    without = [task for task, samples in gpus.items() if not samples]
    if without and (run.folder / "logs").is_dir():
        of_tasks = "" if len(without) == len(gpus) else f" of {', '.join(without)}"
        yield f"No use of GPUs{of_tasks}: nvidia-smi gave no answer, or it was not collected."


@dataclass(frozen=True)
class ResultFile:
    """A file on the controller; `path` is relative to the run's folder. `sha256` is "" for a file
    above MAX_HASHED_BYTES."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Results:
    """The first MAX_FILES results, and the number and size of all."""

    files: tuple[ResultFile, ...]
    count: int
    bytes: int


def results(run: Run) -> Results:
    """Read and hash the checkpoints and outputs on the controller. Raises OSError."""
    files = [file for folder in FOLDERS for file in _regular_files(run.folder / folder)]
    sizes = [file.stat().st_size for file in files]
    shown = tuple(
        ResultFile(escape_line(file.relative_to(run.folder).as_posix()), size, _hash(file, size))
        for file, size in zip(files[:MAX_FILES], sizes, strict=False)
    )
    return Results(shown, len(files), sum(sizes))


def log_tail(run: Run, task_file_name: str) -> tuple[str, ...]:
    """Return the last lines of a collected log; none if it was not collected. Raises OSError."""
    text = course.read_end(run.folder / "logs" / f"{task_file_name}.log", TAIL_BYTES)
    return tuple(clean_line(line) for line in text.split("\n")[-TAIL_LINES - 1 :] if line)


def clean_line(line: str) -> str:
    """Return what a terminal would finally show of a line, without control characters."""
    text = escape_control(plain_text(line[: 4 * MAX_LINE].rstrip("\r")))
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


def _regular_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*"), key=_natural):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not path.is_symlink() and not is_hidden:
            yield path


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that puts model.ckpt-656 before model.ckpt-1664."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]


def _hash(file: Path, size: int) -> str:
    return filesystem.sha256(str(file)) if size <= MAX_HASHED_BYTES else ""
