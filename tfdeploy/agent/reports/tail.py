"""Read the complete lines that a task's log gains, across its rotation, from a cursor on; or only
those that match a pattern: they are selected on the host, so that only they use the network.

At a rotation <task>.log is renamed to <task>.log.1, replacing an older one, and a new <task>.log is
created (supervision/log.py). A cursor recognizes a file by its inode and by the bytes before its
offset, because the file system soon reuses an inode.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
import zlib
from collections import deque
from contextlib import contextmanager
from typing import BinaryIO, Callable, Deque, Iterator, List, Optional, Tuple

from ...shared import filesystem
from ..refusal import Refusal

CHUNK = 256 * 1024
HISTORY_BYTES = 64 * 1024  # old lines are searched from the end of a file in steps of this size
FINGERPRINT_BYTES = 1024
PROGRESS_BAR_S = 10.0  # an epoch of Keras is one line and may take an hour
LINES_LOST = "… lines may be lost: the log was rotated or replaced before they were read"


class Tail:
    """One task's log, read as it grows.

    `cursor` names the end of what was read; another Tail that gets it continues there. "" is the
    start of the oldest file. Without a cursor it starts with the last `lines` lines (None: all), of
    those that the last `history_bytes` of each file contain.
    """

    def __init__(
        self,
        task: str,
        path: str,
        lines: Optional[int],
        cursor: Optional[str] = None,
        history_bytes: int = sys.maxsize,
    ) -> None:
        self.task = task
        self.cursor = cursor or ""
        self._path = path
        self._partial_line = b""
        self._file: Optional[BinaryIO] = None
        self._next_file: Optional[BinaryIO] = None
        self._lines_lost = False
        self._yielded_at = time.monotonic()
        if cursor:
            self._resume(cursor)
        elif cursor is None and lines is not None:
            self._skip_to_last(lines, history_bytes)

    def read(self, last: bool) -> Iterator[List[str]]:
        """Yield the lines that were written since the last call.

        `last` says that nothing more will be written, so a line without an end is complete. Yields
        an empty list if only the cursor moved, to a new file.
        """
        reported_cursor = self.cursor
        while True:
            chunk = self._next_chunk()
            lines, newline, self._partial_line = (self._partial_line + chunk).rpartition(b"\n")
            text = lines + newline or self._progress_bar()
            if (not chunk and last) or len(self._partial_line) > CHUNK:
                text, self._partial_line = text + self._partial_line, b""
            if text:
                self._yielded_at = time.monotonic()
                self._move_cursor()
                reported_cursor = self.cursor
                yield _split(text)
            if not chunk:
                break
        if self.cursor != reported_cursor:
            yield []

    def _progress_bar(self) -> bytes:
        """Return the last state of a progress bar if its line has not ended for a long time."""
        if time.monotonic() - self._yielded_at < PROGRESS_BAR_S or b"\r" not in self._partial_line:
            return b""
        bar, carriage_return, self._partial_line = self._partial_line.rpartition(b"\r")
        return bar + carriage_return

    def _next_chunk(self) -> bytes:
        while True:
            # Look for the next file before the read: no process writes to a file that has one.
            self._next_file = self._next_file or self._find_next_file()
            chunk = _read_chunk(self._file)
            if chunk or self._next_file is None:
                return chunk
            self._file, self._next_file = self._next_file, None
            if not self._partial_line:
                self._move_cursor()  # the next rotation removes the file that it names now
            if self._lines_lost:
                self._lines_lost = False
                return (b"\n" if self._partial_line else b"") + LINES_LOST.encode() + b"\n"

    def _find_next_file(self) -> Optional[BinaryIO]:
        """Return the file to read after this one, or None if there is none yet."""
        if self._file and _inode_at(self._path) == _inode(self._file):
            return None
        files = _open_files(self._path)
        inodes = [_inode(file) for file in files]
        if self._file and _inode(self._file) in inodes:
            files = files[inodes.index(_inode(self._file)) + 1 :]
        elif self._file:
            self._lines_lost = True  # both files are new: there may have been others between
        return files[0] if files else None

    def _resume(self, cursor: str) -> None:
        offset = int(cursor.split(":")[1])
        for file in _open_files(self._path):
            if _cursor_at(file, offset) == cursor:
                file.seek(offset)
                self._file = file
                return
        self._lines_lost = True

    def _skip_to_last(self, lines: int, history_bytes: int) -> None:
        for file in reversed(_open_files(self._path)):
            last = _last_lines(file, lines, history_bytes)
            start = file.seek(file.seek(0, os.SEEK_END) - sum(map(len, last)))
            lines -= len(last)
            self._file = file
            if lines <= 0 or start > 0:
                break
        self._move_cursor()

    def _move_cursor(self) -> None:
        """Point the cursor at the end of the last complete line. The partial line was read from
        the current file, so it can be subtracted from its offset."""
        if self._file:
            self.cursor = _cursor_at(self._file, self._file.tell() - len(self._partial_line))


def _open_files(path: str) -> List[BinaryIO]:
    """Return the log's files, oldest first.

    Opens the newer one first; in the other order a rotation between the two could hide a file.
    """
    newer, older = _open(path), _open(path + ".1")
    if newer and older and _inode(newer) == _inode(older):
        return [newer]
    return [file for file in (older, newer) if file]


def _open(path: str) -> Optional[BinaryIO]:
    try:
        return os.fdopen(filesystem.open_regular(path), "rb", buffering=0)
    except OSError:
        return None


def _last_lines(file: BinaryIO, count: int, history_bytes: int) -> List[bytes]:
    """Return the last `count` lines of a file, or as many as its last `history_bytes` contain."""
    end = file.seek(0, os.SEEK_END)
    limit, searched = min(end, history_bytes), 0
    while count:
        searched = min(limit, searched * 4 or HISTORY_BYTES)
        # A "\r" ends no line: progress bars rewrite theirs.
        lines = io.BytesIO(os.pread(file.fileno(), searched, end - searched)).readlines()
        if searched == limit or len(lines) > count:  # the first of more lines may be incomplete
            return lines[-count:]
    return []


def _read_chunk(file: Optional[BinaryIO]) -> bytes:
    if file is None:
        return b""
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)  # the log was truncated: its content is new
    return file.read(CHUNK)


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _inode_at(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _cursor_at(file: BinaryIO, offset: int) -> str:
    """Return the file's inode, the offset, and a checksum of the file's first bytes and of the
    bytes right before the offset."""
    size = min(offset, FINGERPRINT_BYTES)
    content = os.pread(file.fileno(), size, 0) + os.pread(file.fileno(), size, offset - size)
    return "{}:{}:{:08x}".format(_inode(file), offset, zlib.crc32(content))


def _split(text: bytes) -> List[str]:
    return text.decode(errors="replace")[: -1 if text.endswith(b"\n") else None].split("\n")


PATTERN_CPU_S = 2.0  # for a chunk of a log, which takes a few milliseconds
MAX_PATTERN_CHARS = 1000
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def matcher(pattern: str) -> Callable[[List[str]], List[str]]:
    """Return a function that selects lines. What it matches has no colours.

    Raises Refusal if the pattern is invalid, as the function does if it takes more than
    PATTERN_CPU_S for one part of a log.
    """
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise OverflowError("it has more than {} characters".format(MAX_PATTERN_CHARS))
        search = re.compile(pattern).search
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(
            "--grep: this host's Python can't use the pattern: {}".format(error)
        ) from None

    def matching(lines: List[str]) -> List[str]:
        with _limited_cpu():
            return [x for x in lines if search(COLORS.sub("", x)) or x == LINES_LOST]

    return matching


@contextmanager
def _limited_cpu() -> Iterator[None]:
    """Raise Refusal after PATTERN_CPU_S: `re` has no limit of its own, but it notices signals."""

    def end(*_: object) -> None:
        raise Refusal(
            "--grep: the pattern takes more than {:g} s for a part of a log".format(PATTERN_CPU_S),
            "choose one without repetitions in repetitions, such as (a+)+",
        )

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATTERN_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


class SelectedLines:
    """The selected lines of one log, read as a Tail is. Of those that exist at the first read, only
    the last `limit` are returned (None: all)."""

    def __init__(
        self, tail: Tail, select: Callable[[List[str]], List[str]], limit: Optional[int]
    ) -> None:
        self.task, self.cursor = tail.task, tail.cursor
        self._tail, self._select, self._limit = tail, select, limit

    def read(self, last: bool) -> Iterator[List[str]]:
        """Yield the selected lines of each part; also [], as the cursor has moved."""
        limit, self._limit = self._limit, None
        parts = self._parts(last)
        for cursor, lines in parts if limit is None else self._newest(parts, limit):
            self.cursor = cursor
            yield lines

    def _parts(self, last: bool) -> Iterator[Tuple[str, List[str]]]:
        """Yield the selected lines of each part, and the cursor of its end."""
        for lines in self._tail.read(last):
            yield self._tail.cursor, self._select(lines)

    def _newest(
        self, parts: Iterator[Tuple[str, List[str]]], limit: int
    ) -> Iterator[Tuple[str, List[str]]]:
        """Yield the last `limit` lines part by part, as no answer can have all; then []."""
        newest: Deque[Tuple[str, List[str]]] = deque()
        surplus = -limit
        for cursor, lines in parts:
            newest.append((cursor, lines))
            surplus += len(lines)
            while newest and surplus >= len(newest[0][1]):
                surplus -= len(newest.popleft()[1])
        for cursor, lines in newest:
            yield cursor, lines[max(0, surplus) :]
            surplus = 0
        yield self._tail.cursor, []
