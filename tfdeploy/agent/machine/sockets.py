"""TCP connections between hosts: connect, listen, and exchange data before a deadline."""

from __future__ import annotations

import socket
import time

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List, Optional

CHUNK = 1 << 16


class DeadlineSocket:
    """A connection with one deadline for everything that is sent and received.

    A peer that sends slowly or endlessly cannot extend it. After the deadline, `timeout_s` seconds
    from now, every call raises socket.timeout.
    """

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._buffer = b""

    def addresses(self) -> List[str]:
        """Return the addresses of both ends."""
        ends = (self._connection.getpeername(), self._connection.getsockname())
        return [str(end[0]) for end in ends]

    def send(self, data: bytes) -> None:
        self._limit_time()
        self._connection.sendall(data)

    def receive_exactly(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises EOFError if the peer closes the connection first."""
        while len(self._buffer) < size:
            self._receive()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def receive_line(self, max_bytes: int) -> bytes:
        """Return the next line without its newline.

        Raises ValueError if more than `max_bytes` arrive without a newline, and EOFError if the
        peer closes the connection first.
        """
        while b"\n" not in self._buffer:
            if len(self._buffer) > max_bytes:
                raise ValueError("a line without an end")
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _receive(self) -> None:
        self._limit_time()
        part = self._connection.recv(CHUNK)
        if not part:
            raise EOFError("it closed the connection")
        self._buffer += part

    def _limit_time(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise socket.timeout("timed out")
        self._connection.settimeout(left_s)


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a connection to `host`, a name or address in plain ASCII (hosts.toml allows no other).

    Raises OSError, including socket.timeout.
    """
    # For a str Python loads its tables of international names, which takes 2 ms; for bytes not.
    name: Any = host.encode()
    errors: List[OSError] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM):
        try:
            return _connect_socket(socket.socket(family, kind, protocol), address, timeout_s)
        except OSError as error:
            errors.append(error)
    # A name may also have an address that this machine has no network for (::1 without IPv6). A
    # refused connection says more than that error.
    raise max(errors, key=lambda error: isinstance(error, ConnectionRefusedError))


def _connect_socket(connection: socket.socket, address: Any, timeout_s: float) -> socket.socket:
    try:
        connection.settimeout(timeout_s)
        connection.connect(address)
        return connection
    except OSError:
        connection.close()
        raise


def listen(port: int, backlog: Optional[int] = None) -> socket.socket:
    """Return a listener on all addresses of this host, IPv4 and, if it has any, IPv6.

    hosts.toml decides which of the addresses the other hosts use. Raises OSError if the port is
    taken.
    """
    dual_stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    return socket.create_server(
        ("", port), family=family, backlog=backlog, dualstack_ipv6=dual_stack
    )
