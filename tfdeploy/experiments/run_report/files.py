"""List what `collect` has fetched of a run: checkpoints and outputs with hashes, ends of logs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import escape_control, escape_line
from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.shared import hashing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdeploy.run import Run

FOLDERS = ("checkpoints", "outputs", "fetched")
MAX_FILES = 200
MAX_HASHED_BYTES = 8_000_000_000  # a file of this size takes some seconds
TAIL_BYTES = 1 << 16
TAIL_LINES = 30
MAX_LOG_BYTES = 32 << 20
MAX_LINE = 400


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
    file = run.folder / "logs" / f"{task_file_name}.log"
    if not file.is_file() or file.is_symlink():
        return ()
    with file.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
        text = log.read(TAIL_BYTES).decode(errors="replace")
    return tuple(clean_line(line) for line in text.split("\n")[-TAIL_LINES - 1 :] if line)


def chief_log(run: Run) -> str:
    """Return the newest MAX_LOG_BYTES of the chief's log. Raises OSError."""
    file = run.folder / "logs" / f"{run.plan.chief.task.file_name}.log"
    if not file.is_file() or file.is_symlink():
        return ""
    with file.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
        return log.read(MAX_LOG_BYTES).decode(errors="replace")


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
    return hashing.sha256(str(file)) if size <= MAX_HASHED_BYTES else ""
