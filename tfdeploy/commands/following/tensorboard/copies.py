"""Copies of the event files of a run's tasks. Each copy ends where a record ends.

runs/<run>/tensorboard/<task>/…    as below the task's checkpoint directory, or its own directory
"""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, RunError, TransferFailed
from tfdeploy.results.fetch import is_safe_path
from tfdeploy.shared import event_records
from tfdeploy.shared.event_records import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.events import EventPiece

FOLDER = "tensorboard"
MAX_PIECE = event_records.MAX_RECORD + event_records.BLOCK
MAX_FILES = 20_000  # of one run
FREE_BYTES = 256 << 20  # that stay free on the controller's disk


class OddName(Exception):
    """A host has an event file whose name can't be used on the controller."""


class EventCopies:
    """The copies of one run. Of two threads, each writes the files of other tasks."""

    def __init__(self, run: Run) -> None:
        self._own = run.open() / FOLDER
        self._tasks: dict[str, str] = {}
        self._files: set[str] = set()
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the tasks of the run's newest plan; those of its earlier ones stay."""
        self._run = run
        self._tasks = self._tasks | {str(p.task): p.task.file_name for p in run.plan.placements}

    @property
    def folder(self) -> Path:
        return self._own.path

    def prepare(self) -> None:
        """Take over what `collect` has fetched, and cut what an interruption has left unfinished.
        TensorBoard reads the folder: what is no regular file is deleted. Raises OSError."""
        self._own.clean(lambda name: True)
        self._take_collected()
        for task in self._tasks.values():
            for path, size in _event_files(self._own / task).items():
                name = f"{task}/{path}"
                with self._own.open(name) as opened:
                    whole = _whole_size(opened)
                if whole < size:
                    self._own.cut(name, whole)
                self._files.add(name)

    def present(self, tasks: Sequence[str]) -> list[tuple[str, str, int, str]]:
        """Return the task, path, size and SHA-256 of each copy of these tasks. Raises RunError if
        one can't be read."""
        try:
            return [found for task in tasks for found in self._present(task)]
        except OSError as error:
            raise RunError(f"{error.filename} can't be read: {error.strerror}") from None

    def _present(self, task: str) -> Iterator[tuple[str, str, int, str]]:
        folder = self._own / self._tasks[task]
        for path, size in _event_files(folder).items():
            yield task, path, size, folder.sha256(path)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of files and bytes of each task that has any."""
        files = {task: _event_files(self._own / name) for task, name in self._tasks.items()}
        return {task: (len(own), sum(own.values())) for task, own in files.items() if own}

    def write(self, host: str, piece: EventPiece) -> None:
        """Write a piece at its place. A piece that repeats what is there changes nothing; one that
        differs replaces the file from there on.

        Raises OddName, AgentError if a host sends what it must not, TransferFailed if the disk is
        almost full, and OSError.
        """
        name = self._place(host, piece)
        data = _unpack(host, piece)
        self._check_disk(host)
        size = self._own.size(name)
        if piece.begin > size:
            raise AgentError(host, f"it sent {piece.path} from byte {piece.begin} on, after {size}")
        if piece.begin == size:
            self._own.append(name, data)
        elif self._read(name, piece.begin, len(data)) != data:
            self._own.write(name, (*self._own.head(name, piece.begin), data))
        self._files.add(name)

    def _read(self, name: str, begin: int, size: int) -> bytes:
        with self._own.open(name) as file:
            file.seek(begin)
            return file.read(size)

    def _place(self, host: str, piece: EventPiece) -> str:
        """Return the file of a piece. Raises OddName, and AgentError if it is none of ours."""
        if not piece.path.isprintable() and is_safe_path(escape_name(piece.path)):
            raise OddName("has a name with characters that can't be printed")
        if not is_safe_path(piece.path) or EVENTS not in piece.path.rpartition("/")[2]:
            raise AgentError(host, f"it names a file {piece.path!r:.80}, which is refused")
        file = f"{self._tasks[piece.task]}/{PurePosixPath(piece.path)}"
        if file not in self._files and len(self._files) >= MAX_FILES:
            raise AgentError(host, f"it names more than {MAX_FILES} event files")
        return file

    def _check_disk(self, host: str) -> None:
        free = self._own.free_bytes()
        if free < FREE_BYTES:
            raise TransferFailed(
                host,
                f"only {free >> 20} MB are free on the disk of {self.folder}",
                "free disk space on the controller",
            )

    def _take_collected(self) -> None:
        """Copy the chief's and the evaluators' files that `collect` fetched, if more of them."""
        collected = self._run.open() / "events"
        chief = self._run.plan.chief.task.file_name
        evaluators = {name for name in self._tasks.values() if name.startswith("evaluator-")}
        for source in _event_files(collected):
            of_evaluator = source.partition("/")[0] in evaluators
            copy = source if of_evaluator else f"{chief}/{source}"
            with collected.open(source) as opened:
                size = _whole_size(opened)
            if size > self._own.size(copy):
                self._own.write(copy, collected.head(source, size))


def escape_name(path: str) -> str:
    """Return a path in which what can't be printed is a question mark."""
    return "".join(char if char.isprintable() else "?" for char in path)


def _event_files(folder: OwnFolder) -> dict[str, int]:
    """Return the size of each regular event file below a folder, by its path there."""
    found = sorted(folder.files().items())
    return {path: info.st_size for path, info in found if EVENTS in path.rpartition("/")[2]}


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
