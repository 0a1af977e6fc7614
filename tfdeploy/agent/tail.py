"""The whole lines that a task's log gains, across its rotation, and where the telling stands.

<task>.log becomes <task>.log.1, in the place of an older one, and a new <task>.log begins (log.py).
A file is known again by its inode and by what stands before the place: an inode is soon given anew.
"""

from __future__ import annotations

import os
import zlib

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO, Iterator, List, Optional

CHUNK = 256 * 1024
OLD_BYTES = 64 * 1024  # how far back of each file old lines are looked for
WITNESS_BYTES = 1024
LOST = "… lines lost: the log was rotated meanwhile"


class Tail:
    """One task's log. `cursor` names the end of what was told: given to another Tail, that one goes
    on there. "" is the begin of the oldest file there is.

    Without a cursor it begins with the last `lines` old lines (None: all).
    """

    def __init__(
        self, task: str, path: str, lines: Optional[int], cursor: Optional[str] = None
    ) -> None:
        self.task = task
        self.cursor = cursor or ""
        self._path = path
        self._rest = b""
        self._file: Optional[BinaryIO] = None
        self._next: Optional[BinaryIO] = None
        self._lost = False
        if cursor:
            self._resume(cursor)
        elif cursor is None and lines is not None:
            self._skip(lines)

    def read(self, last: bool) -> Iterator[List[str]]:
        """What was written since; `last` says that nothing more will be, not even a line's end.

        No lines are told where only the cursor went on, to a new file.
        """
        stood = self.cursor
        while True:
            chunk = self._chunk()
            whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
            text = whole + newline
            if (not chunk and last) or len(self._rest) > CHUNK:
                text, self._rest = text + self._rest, b""
            if text:
                self._stand()
                stood = self.cursor
                yield _split(text)
            if not chunk:
                break
        if self.cursor != stood:
            yield []

    def _chunk(self) -> bytes:
        while True:
            # Looked for before the read: a file that has a successor is written no more.
            self._next = self._next or self._successor()
            chunk = _more(self._file)
            if chunk or self._next is None:
                return chunk
            self._file, self._next = self._next, None
            if not self._rest:
                self._stand()  # else the cursor names a file that the next rotation removes
            if self._lost:
                self._lost = False
                return (b"\n" if self._rest else b"") + LOST.encode() + b"\n"

    def _successor(self) -> Optional[BinaryIO]:
        """The file to be read after this one, once there is one."""
        if self._file and _inode_at(self._path) == _inode(self._file):
            return None
        files = _files(self._path)
        inodes = [_inode(file) for file in files]
        if self._file and _inode(self._file) in inodes:
            files = files[inodes.index(_inode(self._file)) + 1 :]
        elif self._file:
            self._lost = True  # both are new: there may have been others between
        return files[0] if files else None

    def _resume(self, cursor: str) -> None:
        place = int(cursor.split(":")[1])
        for file in _files(self._path):
            if _mark(file, place) == cursor:
                file.seek(place)
                self._file = file
                return
        self._lost = True

    def _skip(self, lines: int) -> None:
        for file in reversed(_files(self._path)):
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - OLD_BYTES))
            kept = file.read(OLD_BYTES).splitlines(keepends=True)[-lines:] if lines else []
            start = file.seek(end - sum(map(len, kept)))
            lines -= len(kept)
            self._file = file
            if lines <= 0 or start > 0:
                break
        self._stand()

    def _stand(self) -> None:
        """A line that has no end yet came with the last read: all that is kept of it is here."""
        if self._file:
            self.cursor = _mark(self._file, self._file.tell() - len(self._rest))


def _files(path: str) -> List[BinaryIO]:
    """The log's files, oldest first. The newer is opened first, or a rotation could hide a file."""
    newer, older = _opened(path), _opened(path + ".1")
    if newer and older and _inode(newer) == _inode(older):
        return [newer]
    return [file for file in (older, newer) if file]


def _opened(path: str) -> Optional[BinaryIO]:
    try:
        return open(path, "rb", buffering=0)
    except OSError:
        return None


def _more(file: Optional[BinaryIO]) -> bytes:
    if file is None:
        return b""
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)  # the log was cut: what it holds now is new
    return file.read(CHUNK)


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _inode_at(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _mark(file: BinaryIO, place: int) -> str:
    """Names a place: its file's inode, its offset, and what stands first in it and right before."""
    size = min(place, WITNESS_BYTES)
    seen = os.pread(file.fileno(), size, 0) + os.pread(file.fileno(), size, place - size)
    return "{}:{}:{:08x}".format(_inode(file), place, zlib.crc32(seen))


def _split(text: bytes) -> List[str]:
    return text.decode(errors="replace")[: -1 if text.endswith(b"\n") else None].split("\n")
