"""The log of a task: a pipe takes what its processes print, and two files keep the newest part.

<task>.log grows to half of the limit, then replaces <task>.log.1. A full disk costs lines, never
the task: if a print failed, it would end the task. If somebody deletes the log or puts something
else in its place, a new one starts and says so.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import threading
import time
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Optional, Tuple

from ...shared import filesystem
from ...shared.records import MAX_LOG_BYTES

TAIL = 1 << 15
F_SETPIPE_SZ = 1031  # source: linux/fcntl.h
LOOK_EVERY_S = 1.0  # whether the log is still there, if the task prints nothing
DELETED = "was deleted;"
MOVED = "{}; that is now {}, and"


class Buffers(NamedTuple):
    """How much of a log is read at once, and for how long a flush may wait.

    Many small prints are collected in the pipe, so that not each of them wakes the supervisor.
    """

    chunk_bytes: int = 1 << 16
    pipe_bytes: int = 1 << 20
    collect_s: float = 0.05
    flush_s: float = 2.0


BUFFERS = Buffers()


class TaskLog:
    """The log of one task.

    The task writes to `descriptor`. `grew_at` is the time of its last output on the monotonic
    clock. `tail` is the end of its output, even if the disk had no space for it.
    """

    def __init__(
        self, path: str, limit_bytes: int = MAX_LOG_BYTES, buffers: Buffers = BUFFERS
    ) -> None:
        self.path = path
        self._buffers = buffers
        self.grew_at = time.monotonic()
        self.tail = b""
        self._max_file_bytes = max(buffers.chunk_bytes, limit_bytes // 2)
        self._lost_bytes = 0
        self._copy: Optional[BinaryIO] = None
        self._copied_bytes = 0
        self._is_busy = False
        self._file = -1
        self._stamp = (0, 0)
        self._open_again()
        self._source, self.descriptor = os.pipe()
        self._collects = _enlarge(self.descriptor, buffers.pipe_bytes)
        threading.Thread(target=self._pump, daemon=True).start()

    def flush(self) -> None:
        """Wait until the file contains everything that was written so far, or for `flush_s`."""
        deadline = time.monotonic() + self._buffers.flush_s
        # In this order: if the pipe is empty, its content may still be with the busy pump.
        while (_unread_bytes(self._source) or self._is_busy) and time.monotonic() < deadline:
            time.sleep(0.005)

    def copy_to(self, path: str) -> None:
        """Append what follows to another file, too, up to the size of the log; "" ends that. A full
        disk costs lines. Raises OSError."""
        self.flush()
        copy, self._copy = self._copy, None
        if copy:
            copy.close()
        if path:
            self._copied_bytes = 0
            self._copy = os.fdopen(filesystem.open_log(path)[0], "ab", buffering=0)

    def _pump(self) -> None:
        buffers = self._buffers
        while True:
            ready, _, _ = select.select([self._source], [], [], LOOK_EVERY_S)
            self._look()
            if not ready:
                continue
            self._is_busy = True
            chunk = os.read(self._source, buffers.chunk_bytes)
            last_grew_at, self.grew_at = self.grew_at, time.monotonic()
            self.tail = (self.tail + chunk)[-TAIL:]
            try:
                self._append(chunk)
                if self._copy and self._copied_bytes < self._max_file_bytes:
                    self._copied_bytes += self._copy.write(chunk) or 0
            except (OSError, ValueError):  # the copy may just have been closed
                pass  # a failing disk costs lines; an unread pipe would stop the task
            self._is_busy = False
            is_small = self._collects and len(chunk) < buffers.chunk_bytes // 8
            if is_small and self.grew_at < last_grew_at + 2 * buffers.collect_s:
                time.sleep(buffers.collect_s)

    def _look(self) -> None:
        """Start a new log if this one was deleted or replaced."""
        try:
            if _stamp(os.lstat(self.path)) != self._stamp:
                self._open_again()
        except FileNotFoundError:
            with suppress(OSError):  # its folder is gone, too, or the disk is full
                self._open_again(DELETED)
        except OSError:
            pass

    def _open_again(self, found: str = "") -> None:
        """Open the log. Say in it what was `found` in its place. Raises OSError."""
        before = self._file
        self._file, moved = filesystem.open_log(self.path)
        self._stamp = _stamp(os.fstat(self._file))
        if before >= 0:
            os.close(before)
        if moved:
            found = MOVED.format(moved, os.path.basename(self.path) + filesystem.FOUND)
        if found:
            self._write("[tfdeploy: the log {} a new one starts here]\n".format(found).encode())

    def _append(self, chunk: bytes) -> None:
        excess = os.fstat(self._file).st_size + len(chunk) - self._max_file_bytes
        # A file ends with a complete line, unless that line is longer than `chunk_bytes`.
        if excess > self._buffers.chunk_bytes or (excess > 0 and b"\n" in chunk):
            head, newline, chunk = chunk.partition(b"\n")
            self._write(head + newline)
            self._rotate()
        lost = self._lost_bytes
        if lost and self._write(b"\n[%d bytes of log lost: no space]\n" % lost):
            lost = 0
        self._lost_bytes = lost
        self._write(chunk)

    def _write(self, data: bytes) -> bool:
        """Write; return False if data was lost, because the disk is full."""
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError:
                self._lost_bytes += len(data)
                return False
        return True

    def _rotate(self) -> None:
        new_path = self.path + ".new"
        try:
            # First: without a free inode the current file is kept.
            file = filesystem.open_to_append(new_path)
            os.replace(self.path, self.path + ".1")
            os.replace(new_path, self.path)
        except OSError:
            return
        os.close(self._file)
        self._file, self._stamp = file, _stamp(os.fstat(file))


def _stamp(info: os.stat_result) -> Tuple[int, int]:
    return info.st_dev, info.st_ino


def _enlarge(pipe: int, size: int) -> bool:
    """Let a pipe hold `size` bytes. Return False if that exceeds this user's limit (pipe(7)): then
    it may hold as little as one page, and a task that fills it waits until it is read."""
    try:
        fcntl.fcntl(pipe, F_SETPIPE_SZ, size)
    except OSError:
        return False
    return True


def _unread_bytes(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
