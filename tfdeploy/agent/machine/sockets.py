"""TCP connections between hosts: connect, listen, serve, and exchange data before a deadline."""

from __future__ import annotations

import errno
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Sequence

CHUNK = 1 << 16
MAX_CONNECTIONS = 64
EVICT_S = 0.5
BACKLOG = 256
TCP_NOTSENT_LOWAT = 25  # linux/tcp.h


class DeadlineSocket:
    """A connection with one deadline for everything that is sent and received.

    A peer that sends slowly or endlessly cannot extend it. After the deadline, `timeout_s` seconds
    from now, every call raises socket.timeout.
    """

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._buffer = b""

    def peer_address(self) -> str:
        return str(self._connection.getpeername()[0])

    def own_address(self) -> str:
        return str(self._connection.getsockname()[0])

    def limit_unsent(self, size: int) -> None:
        """Let at most `size` bytes wait in the kernel until they are sent. On a slow link megabytes
        would wait there."""
        self._connection.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, size)

    def send(self, data: bytes) -> None:
        self._limit_time()
        self._connection.sendall(data)

    def receive_into(self, target: memoryview) -> None:
        """Fill `target`. Raises EOFError if the peer closes the connection first."""
        filled = min(len(self._buffer), len(target))
        target[:filled], self._buffer = self._buffer[:filled], self._buffer[filled:]
        while filled < len(target):
            self._limit_time()
            count = self._connection.recv_into(target[filled:])
            if not count:
                raise EOFError("it closed the connection")
            filled += count

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


def connect(
    host: str, port: int, timeout_s: float, source_ports: Sequence[int] = (0,)
) -> socket.socket:
    """Return a connection to `host`, a name or address in plain ASCII (hosts.toml allows no other).

    It comes from the first of `source_ports` that has no such connection yet; 0 is any port. Raises
    OSError, including socket.timeout.
    """
    # For a str Python loads its tables of international names, which takes 2 ms; for bytes not.
    name: Any = host.encode()
    errors: List[OSError] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM):
        for source_port in source_ports:
            try:
                plain = socket.socket(family, kind, protocol)
                return _connect_socket(plain, address, timeout_s, source_port)
            except OSError as error:
                errors.append(error)
                if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    break
    # A name may also have an address that this machine has no network for (::1 without IPv6). A
    # refused connection says more than that error.
    raise max(errors, key=lambda error: isinstance(error, ConnectionRefusedError))


def _connect_socket(
    connection: socket.socket, address: Any, timeout_s: float, source_port: int
) -> socket.socket:
    try:
        if source_port:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            connection.bind(("", source_port))
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


def bind(port: int, option: int) -> socket.socket:
    """Return a socket that is bound to a port of all addresses, and does not listen. `option` says
    what may share the port: SO_REUSEADDR or SO_REUSEPORT. Raises OSError."""
    dual_stack = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET)
    try:
        if dual_stack:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound


class ConnectionLimit:
    """At most MAX_CONNECTIONS at a time. Beyond, a new one replaces the oldest one of the address
    that has most: a flood costs only its own host its connections."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        self._admitted: Dict[socket.socket, str] = {}  # the client's address; the oldest first

    def admit(self, connection: socket.socket, address: str) -> bool:
        """Return whether a client is admitted: not if there are too many, also after another one
        was hung up on."""
        if not self._free.acquire(blocking=False):
            self._evict()
            if not self._free.acquire(timeout=EVICT_S):
                return False
        self._admitted[connection] = address
        return True

    def _evict(self) -> None:
        taken = dict(self._admitted)
        counts = [*taken.values()]
        most = max(counts, key=counts.count, default="")
        for oldest in [each for each, address in taken.items() if address == most][:1]:
            _hang_up(oldest)

    def release(self, connection: socket.socket) -> None:
        del self._admitted[connection]
        self._free.release()


def _hang_up(connection: socket.socket) -> None:
    """Wake the thread that waits for this connection, which then closes it."""
    with suppress(OSError):  # it has closed by itself
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not SSLSocket's: it is in use


class ConnectionServer:
    """Answers each connection in its own thread, at most MAX_CONNECTIONS at a time.

    Strangers may connect but must not block the others: a client has `timeout_s` seconds for its
    request, and if there are too many, the oldest connection is closed. Raises OSError if the
    port is taken. (The module socketserver is similar, but wakes up ten times a second.)
    """

    def __init__(
        self, port: int, answer: Callable[[DeadlineSocket], None], timeout_s: float
    ) -> None:
        self._answer = answer
        self._timeout_s = timeout_s
        self._limit = ConnectionLimit()
        self._listener = listen(port, BACKLOG)
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free the port. Clients whose requests are being answered still get their answers, unless
        this process exits first."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:  # the listener was shut down
                    return
                time.sleep(EVICT_S)  # too many files are open, or the client has gone
                continue
            if self._limit.admit(connection, address):
                self._start_thread(connection)
            else:
                connection.close()

    def _start_thread(self, connection: socket.socket) -> None:
        try:
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()
        except RuntimeError:  # the system allows no more threads: one client after another
            self._handle(connection)

    def _handle(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._answer(DeadlineSocket(connection, self._timeout_s))
            except Exception:
                pass  # clients without the secret, and those that hang up, get no answer
            finally:
                self._limit.release(connection)
