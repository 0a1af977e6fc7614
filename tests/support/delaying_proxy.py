"""A proxy to an sshd that delays what passes and counts round trips: the line to a distant host."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from support.ports import ADDRESS, free_port

CHUNK = 1 << 16


@dataclass
class RoundTrips:
    """How many round trips the controller has waited for so far, on all of its lines together.

    What it sends belongs to the round trip after the last one whose answer it has; what a host
    sends belongs to the last one that has reached the host.
    """

    answered: int = 0
    bytes: int = 0


@dataclass
class DelayingProxy:
    """A listener before `target`, a port of this machine. `round_trip_s` applies to each piece from
    the moment at which it is set. With `bytes_s`, no more than that passes in a second, in each
    direction."""

    target: int
    trips: RoundTrips
    round_trip_s: float = 0.0
    bytes_s: float = 0.0
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self._listener = socket.create_server((ADDRESS, self.port), backlog=256)
        self._sockets: list[socket.socket] = []
        self._reached_host = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        self.trips.answered = self._reached_host = self.trips.bytes = 0

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection((ADDRESS, self.target))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [near, far]
            self._forward(near, far, to_host=True)
            self._forward(far, near, to_host=False)

    def _forward(self, source: socket.socket, target: socket.socket, *, to_host: bool) -> None:
        """Deliver each piece half a round trip after it was received, in order."""
        # A slow line makes the sender wait.
        pieces: queue.Queue[tuple[float, int, bytes]] = queue.Queue(1 if self.bytes_s else 0)

        def receive() -> None:
            piece = b"-"
            while piece:
                try:
                    piece = source.recv(CHUNK)
                except OSError:
                    piece = b""
                self.trips.bytes += len(piece)
                number = self.trips.answered + 1 if to_host else self._reached_host
                pieces.put((time.monotonic() + self.round_trip_s / 2, number, piece))

        def deliver() -> None:
            with suppress(OSError):
                while True:
                    due, number, piece = pieces.get()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not piece:
                        return target.shutdown(socket.SHUT_WR)
                    self._count(number, to_host=to_host)
                    target.sendall(piece)
                    if self.bytes_s:
                        time.sleep(len(piece) / self.bytes_s)

        for work in (receive, deliver):
            threading.Thread(target=work, daemon=True).start()

    def _count(self, number: int, *, to_host: bool) -> None:
        if to_host:
            self._reached_host = max(self._reached_host, number)
        else:
            self.trips.answered = max(self.trips.answered, number)
