"""The messages between a command and the connection daemon: frames with a kind and data."""

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

HEADER = struct.Struct("!cI")
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
CHUNK = 1 << 16

# From the daemon: the client's user is accepted; the command was started; its output and errors;
# its exit code; an error; what the daemon does for the client, for its log.
HELLO, STARTED, OUTPUT, ERRORS, EXIT, FAILED, LOG = b"h", b"b", b"o", b"e", b"x", b"f", b"l"
# From the client: the request; standard input for the command, and its end; see Stream.park.
REQUEST, INPUT, END, PARK = b"a", b"i", b"z", b"k"


class FrameConnection:
    """One connection between client and daemon. Each direction may have its own thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._reading = threading.Lock()
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        """Send one frame, or several if `data` is long. Raises OSError if the peer is gone."""
        for part in _split(memoryview(data)):
            self._sock.sendall(HEADER.pack(kind, len(part)) + part)

    def next(self, timeout_s: float | None = None) -> tuple[bytes, bytes]:
        """Return the next frame; (b"", b"") if the peer is gone. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._reading:
            while (frame := self._take_frame()) is None:
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not (chunk := self._receive(left_s)):
                    return b"", b""
                self._buffer += chunk
        return frame

    def is_own_user(self) -> bool:
        """Return whether the peer runs as the same user."""
        size = CREDENTIALS.size
        credentials = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return bool(CREDENTIALS.unpack(credentials)[1] == os.geteuid())

    def is_peer_gone(self) -> bool:
        """Return whether the peer is gone, even if frames of it are still unread."""
        if self._sock.fileno() < 0:
            return True
        hangup = select.poll()
        hangup.register(self._sock, select.POLLRDHUP)
        return bool(hangup.poll(0))

    def close(self) -> None:
        """Close it, from any thread; a reader gets the end."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._reading:
            self._sock.close()

    def _receive(self, timeout_s: float | None) -> bytes:
        if self._sock.fileno() < 0:
            return b""
        if not self._readable.poll(None if timeout_s is None else timeout_s * 1000):
            raise TimeoutError
        try:
            return self._sock.recv(CHUNK)
        except OSError:  # the peer left without reading all frames
            return b""

    def _take_frame(self) -> tuple[bytes, bytes] | None:
        """Remove the first frame from the buffer; None if it is incomplete."""
        if len(self._buffer) < HEADER.size:
            return None
        kind, size = HEADER.unpack_from(self._buffer)
        end = HEADER.size + size
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[HEADER.size : end])
        del self._buffer[:end]
        return kind, data


def _split(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data) or 1, CHUNK):
        yield data[start : start + CHUNK]
