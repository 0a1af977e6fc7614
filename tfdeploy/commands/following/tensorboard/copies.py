"""Copies of the event files of a run's tasks. Each copy ends where a record ends.

runs/<run>/tensorboard/<task>/…    as below the task's checkpoint directory, or its own directory
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.agent.outputs import event_records
from tfdeploy.agent.outputs.event_files import EVENTS
from tfdeploy.errors import AgentError, RunError, TransferFailed
from tfdeploy.transfer.fetch import is_safe_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from tfdeploy.agent.protocol.events import EventPiece
    from tfdeploy.run import Run

FOLDER = "tensorboard"
MAX_PIECE = event_records.MAX_RECORD + event_records.BLOCK
MAX_FILES = 20_000  # of one run
FREE_BYTES = 256 << 20  # that stay free on the controller's disk
BLOCK = 1 << 20


class OddName(Exception):
    """A host has an event file whose name can't be used on the controller."""


class EventCopies:
    """The copies of one run. Of two threads, each writes the files of other tasks."""

    def __init__(self, run: Run) -> None:
        self.folder = run.folder / FOLDER
        self._tasks: dict[str, str] = {}
        self._files: set[Path] = set()
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the tasks of the run's newest plan; those of its earlier ones stay."""
        self._run = run
        self._tasks = self._tasks | {str(p.task): p.task.file_name for p in run.plan.placements}

    def prepare(self) -> None:
        """Take over what `collect` has fetched, and cut what an interruption has left unfinished.

        Raises RunError if the folder is a link, and OSError.
        """
        if self.folder.is_symlink():
            raise RunError(f"{self.folder} is a link", "delete it")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._take_collected()
        for task in self._tasks.values():
            for file in _event_files(self.folder / task):
                with file.open("r+b") as opened:
                    size = _whole_size(opened)
                    if size < file.stat().st_size:
                        opened.truncate(size)
                self._files.add(file)

    def present(self, tasks: Sequence[str]) -> list[tuple[str, str, int, str]]:
        """Return the task, path, size and SHA-256 of each copy of these tasks. Raises RunError if
        one can't be read."""
        try:
            return [found for task in tasks for found in self._present(task)]
        except OSError as error:
            raise RunError(f"{error.filename} can't be read: {error.strerror}") from None

    def _present(self, task: str) -> Iterator[tuple[str, str, int, str]]:
        folder = self.folder / self._tasks[task]
        for file in _event_files(folder):
            with file.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
                yield task, file.relative_to(folder).as_posix(), opened.tell(), digest

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of files and bytes of each task that has any."""
        files = {task: list(_event_files(self.folder / name)) for task, name in self._tasks.items()}
        return {
            task: (len(own), sum(file.stat().st_size for file in own))
            for task, own in files.items()
            if own
        }

    def write(self, host: str, piece: EventPiece) -> None:
        """Write a piece at its place. A piece that repeats what is there changes nothing; one that
        differs replaces the file from there on.

        Raises OddName, AgentError if a host sends what it must not, TransferFailed if the disk is
        almost full, and OSError.
        """
        file = self._place(host, piece)
        data = _unpack(host, piece)
        self._check_disk(host)
        file.parent.mkdir(parents=True, exist_ok=True)
        size = file.stat().st_size if file.exists() else 0
        if piece.begin > size:
            raise AgentError(host, f"it sent {piece.path} from byte {piece.begin} on, after {size}")
        if piece.begin == size:
            _append(file, data)
        elif _read(file, piece.begin, len(data)) != data:
            _replace(file, file, piece.begin, data)
        self._files.add(file)

    def _place(self, host: str, piece: EventPiece) -> Path:
        """Return the file of a piece. Raises OddName, and AgentError if it is none of ours."""
        if not piece.path.isprintable() and is_safe_path(escape_name(piece.path)):
            raise OddName("has a name with characters that can't be printed")
        if not is_safe_path(piece.path) or EVENTS not in piece.path.rpartition("/")[2]:
            raise AgentError(host, f"it names a file {piece.path!r:.80}, which is refused")
        folder = self.folder / self._tasks[piece.task]
        file = folder / piece.path
        if file not in self._files and len(self._files) >= MAX_FILES:
            raise AgentError(host, f"it names more than {MAX_FILES} event files")
        steps = [file, *file.parents]
        if any(step.is_symlink() for step in steps[: steps.index(self.folder) + 1]):
            raise TransferFailed(host, f"{file} is below a link", "delete the link")
        return file

    def _check_disk(self, host: str) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < FREE_BYTES:
            raise TransferFailed(
                host,
                f"only {free >> 20} MB are free on the disk of {self.folder}",
                "free disk space on the controller",
            )

    def _take_collected(self) -> None:
        """Copy the chief's and the evaluators' files that `collect` fetched, if more of them."""
        collected = self._run.folder / "events"
        chief = self._run.plan.chief.task.file_name
        evaluators = {name for name in self._tasks.values() if name.startswith("evaluator-")}
        for source in _event_files(collected):
            parts = source.relative_to(collected).parts
            task, path = (parts[0], parts[1:]) if parts[0] in evaluators else (chief, parts)
            copy = self.folder.joinpath(task, *path)
            with source.open("rb") as opened:
                size = _whole_size(opened)
            if size > _size(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                _replace(copy, source, size)


def escape_name(path: str) -> str:
    """Return a path in which what can't be printed is a question mark."""
    return "".join(char if char.isprintable() else "?" for char in path)


def _event_files(folder: Path) -> Iterator[Path]:
    """Yield the regular event files below a folder that is not a link itself."""
    if folder.is_symlink():
        return
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in sorted(names) if EVENTS in name):
            if file.is_file() and not file.is_symlink():
                yield file


def _whole_size(file: BinaryIO) -> int:
    """Return where the whole records of a file end."""
    end, position = os.fstat(file.fileno()).st_size, 0
    try:
        while data := event_records.read(file, position, end):
            position += len(data)
    except event_records.Damaged:
        pass
    return position


def _unpack(host: str, piece: EventPiece) -> bytes:
    """Return the data of a piece: one whole record or more."""
    unpacked = zlib.decompressobj()
    try:
        data = unpacked.decompress(base64.b64decode(piece.data), MAX_PIECE)
        whole = unpacked.eof and event_records.whole_size(data) == len(data) > 0
    except (ValueError, zlib.error, event_records.Damaged):
        whole = False
    if not whole or piece.begin < 0:
        raise AgentError(
            host, f"what it sent of {piece.path} is not whole records of an event file"
        )
    return data


def _append(file: Path, data: bytes) -> None:
    """Append all of the data, or nothing."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as target:
        size = target.seek(0, os.SEEK_END)
        try:
            written = target.write(data)
            if written != len(data):
                raise OSError(28, os.strerror(28), str(file))  # ENOSPC, seen by a short write
        except OSError:
            target.truncate(size)
            raise


def _replace(file: Path, source: Path, size: int, data: bytes = b"") -> None:
    """Replace a file by the first `size` bytes of `source`, which may be itself, and the data."""
    fresh = file.with_name(".incoming")
    fresh.unlink(missing_ok=True)
    _append(fresh, b"")  # only this user can read it
    shutil.copyfile(source, fresh)
    os.truncate(fresh, size)
    _append(fresh, data)
    fresh.replace(file)


def _read(file: Path, begin: int, size: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(begin)
        return opened.read(size)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
