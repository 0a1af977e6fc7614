"""What a command and the keeper say to each other: frames, each of a kind and so many bytes."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = struct.Struct("!cI")
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
CHUNK = 1 << 16

# The keeper: it has heard who calls; the command has begun; what it writes; how it ended.
HELLO, BEGUN, OUTPUT, ERRORS, EXIT, FAILED = b"h", b"b", b"o", b"e", b"x", b"f"
# Who calls: what is wanted; for the command's standard input, and its end; see Stream.keep.
ASK, INPUT, END, KEEP = b"a", b"i", b"z", b"k"


class Frames:
    """One connection between the two. Each direction may have a thread of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._come = bytearray()
        self._reading = threading.Lock()
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        """Raises OSError where the other side is gone."""
        for part in _parts(memoryview(data)):
            self._sock.sendall(HEAD.pack(kind, len(part)) + part)

    def next(self, timeout_s: float | None = None) -> tuple[bytes, bytes]:
        """The next frame; (b"", b"") when the other side is gone. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._reading:
            while (frame := self._whole()) is None:
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not (chunk := self._received(left_s)):
                    return b"", b""
                self._come += chunk
        return frame

    def is_mine(self) -> bool:
        """Whether the same user is at the other end."""
        size = CREDENTIALS.size
        found = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return bool(CREDENTIALS.unpack(found)[1] == os.geteuid())

    def has_left(self) -> bool:
        """Whether the other side is gone, though what it said may not have been read."""
        if self._sock.fileno() < 0:
            return True
        gone = select.poll()
        gone.register(self._sock, select.POLLRDHUP)
        return bool(gone.poll(0))

    def close(self) -> None:
        """From any thread: whoever reads finds the end."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._reading:
            self._sock.close()

    def _received(self, timeout_s: float | None) -> bytes:
        if self._sock.fileno() < 0:
            return b""
        if not self._readable.poll(None if timeout_s is None else timeout_s * 1000):
            raise TimeoutError
        try:
            return self._sock.recv(CHUNK)
        except OSError:  # it left with words of ours unread
            return b""

    def _whole(self) -> tuple[bytes, bytes] | None:
        if len(self._come) < HEAD.size:
            return None
        kind, size = HEAD.unpack_from(self._come)
        end = HEAD.size + size
        if len(self._come) < end:
            return None
        data = bytes(self._come[HEAD.size : end])
        del self._come[:end]
        return kind, data


def _parts(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data) or 1, CHUNK):
        yield data[start : start + CHUNK]
