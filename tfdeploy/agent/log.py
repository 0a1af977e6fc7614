"""A task's log: what its processes write comes through a pipe, and is kept within bounds.

<task>.log grows to half of the limit and becomes <task>.log.1, in the place of an older one. A full
disk costs lines, never the task: a print that fails would end it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import threading
import time

CHUNK = 1 << 16
TAIL = 1 << 15
PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031  # source: linux/fcntl.h
SETTLE_S = 2.0
# Given free when the disk is full, so that the last words of who filled it can be written.
RESERVE = os.urandom(CHUNK)  # zeros take no room where a filesystem compresses


class Log:
    """`descriptor` is what a task writes to. `grew_at` is when it last did, on the monotonic
    clock, and `tail` the last that it wrote, whether or not there was room for it on disk."""

    def __init__(self, path: str, limit_bytes: int, reserve: str) -> None:
        self.path = path
        self.grew_at = time.monotonic()
        self.tail = b""
        self._limit = max(CHUNK, limit_bytes // 2)
        self._lost = 0
        self._busy = False
        self._file = _opened(path)
        self._reserve = reserve
        self._set_aside()
        self._source, self.descriptor = os.pipe()
        try:
            fcntl.fcntl(self.descriptor, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # above this user's share: the usual size will do
        threading.Thread(target=self._pump, daemon=True).start()

    def settle(self) -> None:
        """Wait until all that was written so far stands in the file."""
        deadline = time.monotonic() + SETTLE_S
        # In this order: what the pipe no longer holds was taken by a pump that is busy with it.
        while (_waiting(self._source) or self._busy) and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self) -> None:
        self.settle()
        _remove(self._reserve)

    def _pump(self) -> None:
        while True:
            select.select([self._source], [], [])
            self._busy = True
            chunk = os.read(self._source, CHUNK)
            self.grew_at = time.monotonic()
            self.tail = (self.tail + chunk)[-TAIL:]
            try:
                self._keep(chunk)
            except OSError:
                pass  # a disk that fails costs lines; a pipe that nobody reads would stop the task
            self._busy = False

    def _keep(self, chunk: bytes) -> None:
        over = os.fstat(self._file).st_size + len(chunk) - self._limit
        # A file ends with a whole line, unless that one is longer than CHUNK.
        if over > CHUNK or (over > 0 and b"\n" in chunk):
            head, newline, chunk = chunk.partition(b"\n")
            self._write(head + newline)
            self._rotate()
        lost = self._lost
        if lost and self._write(b"\n[%d bytes of log lost: no space]\n" % lost):
            lost = 0
        self._lost = lost
        self._write(chunk)

    def _write(self, data: bytes) -> bool:
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError:
                if not _remove(self._reserve):
                    self._lost += len(data)
                    return False
        return True

    def _rotate(self) -> None:
        fresh = self.path + ".new"
        try:
            file = _opened(fresh)  # first, for where no inode is free the old file goes on
            os.replace(self.path, self.path + ".1")
            os.replace(fresh, self.path)
        except OSError:
            return
        os.close(self._file)
        self._file = file

    def _set_aside(self) -> None:
        try:
            with open(self._reserve, "wb") as file:
                file.write(RESERVE)
        except OSError:
            pass


def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _waiting(pipe: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def _remove(path: str) -> bool:
    try:
        os.remove(path)
    except OSError:
        return False
    return True
