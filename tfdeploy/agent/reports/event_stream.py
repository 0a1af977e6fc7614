"""The verb `follow_events`: send what event files gain, in whole records, at a limited cost."""

from __future__ import annotations

import base64
import hashlib
import os
import time
import zlib

from ...shared import TYPE_CHECKING, event_records
from ...shared.protocol.events import EventBatch, EventPiece, UnreadableEvents
from ...shared.records import ENDED
from .. import paths
from ..outputs import event_files
from . import status
from .follow import caller_interrupts
from .read_files import open_regular

if TYPE_CHECKING:
    from typing import BinaryIO, Dict, Iterator, List, Optional, Tuple

    from ..outputs.event_files import EventFile

    Present = Dict[Tuple[str, str], Tuple[int, str]]

EVERY_S = 2.0
CPU_SHARE = 0.005  # of one core, for looking; what is new is sent at once
MAX_PAUSE_S = 10.0  # the controller takes a longer silence for a lost host
BATCH_BYTES = 1 << 20
SIGN_S = 5.0  # an empty batch so often, while files are hashed


def follow_events(
    project: str, run: str, tasks: List[str], present: List[Tuple[str, str, int, str]]
) -> Iterator[EventBatch]:
    """Yield what the event files of `tasks` gain, until all of them have ended.

    Also ends when the caller sends its next request or closes the connection.
    """
    started = paths.tasks(project, run)
    known = {(task, path): (size, sha256) for task, path, size, sha256 in present}
    stream = _EventStream(project, run, [task for task in tasks if task in started], known)
    while True:
        before_s = time.process_time()
        has_ended = all(
            status.report(project, run, task).state in ENDED for task in stream.tasks
        )  # before the files are read: then the last records are among what is sent
        yield from stream.batches(last=has_ended)
        if has_ended or caller_interrupts(_pause_s(time.process_time() - before_s)):
            return


def _pause_s(cpu_s: float) -> float:
    return min(MAX_PAUSE_S, max(EVERY_S, cpu_s / CPU_SHARE))


class _EventStream:
    """The event files of some tasks, and what was sent of each."""

    def __init__(self, project: str, run: str, tasks: List[str], present: Present) -> None:
        self.tasks = tasks
        self._project, self._run, self._present = project, run, present
        self._files: Dict[Tuple[str, str], _SentFile] = {}
        self._sent_at = time.monotonic()

    def batches(self, last: bool) -> Iterator[EventBatch]:
        """Yield what all files have gained; the last batch is complete."""
        self._sent_at = time.monotonic()
        pieces: List[EventPiece] = []
        unreadable: List[UnreadableEvents] = []
        for task in self.tasks:
            for path, found in self._listed(task).items():
                file = self._file(task, path)
                for piece in file.pieces(found):
                    pieces += [piece] if piece else []
                    if self._is_due(pieces):
                        yield EventBatch(pieces, [], False, False)
                        pieces = []
                        self._sent_at = time.monotonic()
                unreadable += file.new_errors()
        yield EventBatch(pieces, unreadable, True, last)

    def _is_due(self, pieces: List[EventPiece]) -> bool:
        is_silent = time.monotonic() - self._sent_at >= SIGN_S
        return is_silent or sum(len(each.data) for each in pieces) >= BATCH_BYTES

    def _listed(self, task: str) -> Dict[str, EventFile]:
        """Return the event files of a task by their paths on the controller: relative to the
        checkpoint directory, or else to the task's directory."""
        listed: Dict[str, EventFile] = {}
        for file in sorted(
            event_files.of_run(self._project, self._run, task), key=lambda each: each.path
        ):
            path = file.path if file.path not in listed else os.path.join("work", file.path)
            listed.setdefault(path, file)
        return listed

    def _file(self, task: str, path: str) -> _SentFile:
        if (task, path) not in self._files:
            size, sha256 = self._present.get((task, path), (0, ""))
            self._files[task, path] = _SentFile(task, path, size, sha256)
        return self._files[task, path]


class _SentFile:
    """One event file: `_size` bytes of it are on the controller, with the hash `_sent`."""

    def __init__(self, task: str, path: str, size: int, sha256: str) -> None:
        self._task, self._path = task, path
        self._size, self._claimed = size, sha256
        self._sent = hashlib.sha256()
        self._version: Tuple[int, ...] = ()
        self._error = ""
        self._reported = ""

    def pieces(self, found: EventFile) -> Iterator[Optional[EventPiece]]:
        """Yield the whole records that the file has gained; from byte 0 on if it is not the file
        that was sent. Yield None while it is hashed."""
        if found.version == self._version:
            return
        file = open_regular(found.full_path)
        if file is None:
            return
        with file:
            info = os.fstat(file.fileno())
            replaced = bool(self._version) and info.st_ino != self._version[0]
            if not self._version:
                yield from _update(self._sent, file, self._size)
                replaced = bool(self._size) and self._sent.hexdigest() != self._claimed
            if replaced:
                self._forget()
            self._version = info.st_ino, info.st_size, info.st_mtime_ns
            if info.st_size < self._size:
                self._forget()
            yield from self._read(file, info.st_size)

    def new_errors(self) -> List[UnreadableEvents]:
        if self._error == self._reported:
            return []
        self._reported = self._error
        return [UnreadableEvents(self._task, self._path, self._size, self._error)]

    def _read(self, file: BinaryIO, end: int) -> Iterator[Optional[EventPiece]]:
        while True:
            try:
                data = event_records.read(file, self._size, end)
            except event_records.Damaged as damaged:
                now = hashlib.sha256()
                yield from _update(now, file, self._size)
                if now.digest() != self._sent.digest():
                    self._forget()
                    continue
                self._error = str(damaged)
                return
            if not data:
                return
            packed = base64.b64encode(zlib.compress(data, 1)).decode()
            yield EventPiece(self._task, self._path, self._size, packed)
            self._sent.update(data)
            self._size += len(data)

    def _forget(self) -> None:
        self._size, self._sent = 0, hashlib.sha256()


def _update(digest: hashlib._Hash, file: BinaryIO, size: int) -> Iterator[None]:
    """Add the first `size` bytes of a file. Yield after each block, which may take long."""
    file.seek(0)
    while size > 0:
        block = file.read(min(BATCH_BYTES, size))
        if not block:
            return
        digest.update(block)
        yield
        size -= len(block)
