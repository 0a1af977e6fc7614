"""TCP connections between hosts: connect, listen, serve, and exchange data before a deadline; who
listens on a port of this host."""

from __future__ import annotations

import _thread
import errno
import socket
import struct
import threading
import time

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

CHUNK = 1 << 16
MAX_CONNECTIONS = 64
EVICT_S = 0.5
BACKLOG = 256
# Sources: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST = 4, 20, 0x301
ERROR, DONE = 2, 3
FAMILIES = (socket.AF_INET, socket.AF_INET6)
LISTEN = 10
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
# inet_diag_req_v2: family, protocol, attributes, states, port; the rest is 0
REQUEST = struct.Struct("=BBBxI2s46s")
USER_AND_INODE = struct.Struct("=64xII")  # the last fields of an inet_diag_msg
DIAG_TIMEOUT_S = 2.0
DIAG_BYTES = 1 << 17


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


class ConnectionServer:
    """Answers each connection in its own thread, at most MAX_CONNECTIONS at a time.

    Strangers may connect but must not block the others: a client has `timeout_s` seconds for its
    request, and if all places are taken, the oldest connection is closed. Raises OSError if the
    port is taken. (The module socketserver is similar, but wakes up ten times a second.)
    """

    def __init__(
        self, port: int, answer: Callable[[DeadlineSocket], None], timeout_s: float
    ) -> None:
        self._answer = answer
        self._timeout_s = timeout_s
        self._free_places = threading.Semaphore(MAX_CONNECTIONS)
        self._connections: Dict[socket.socket, None] = {}  # the oldest first
        self._listener = listen(port, BACKLOG)
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free the port. Clients whose requests are being answered still get their answers."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:  # the listener was shut down
                    return
                time.sleep(EVICT_S)  # too many files are open, or the client has gone
                continue
            if not self._start_thread(connection):
                connection.close()

    def _start_thread(self, connection: socket.socket) -> bool:
        if not self._take_place():
            return False
        self._connections[connection] = None
        try:
            # A thread of the module threading costs twice as much, most of it to wait for it.
            _thread.start_new_thread(self._handle, (connection,))
        except RuntimeError:  # the system allows no more threads
            self._free_place(connection)
            return False
        return True

    def _take_place(self) -> bool:
        """Take a free place, closing the oldest connection if there is none."""
        if self._free_places.acquire(blocking=False):
            return True
        for oldest in list(self._connections)[:1]:
            try:
                oldest.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has closed by itself
        return self._free_places.acquire(timeout=EVICT_S)

    def _handle(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._answer(DeadlineSocket(connection, self._timeout_s))
            except Exception:
                pass  # clients without the secret, and those that hang up, get no answer
            finally:
                self._free_place(connection)

    def _free_place(self, connection: socket.socket) -> None:
        del self._connections[connection]
        self._free_places.release()


def listeners(port: int) -> List[Tuple[int, str]]:
    """Return the user id and the inode of each socket that listens on a TCP port of this host.

    Asks the kernel for only these. A kernel, or a sandbox, without that question has tables of all
    sockets, which are read instead: a hundred times slower on a machine with much memory.
    """
    try:
        return [found for family in FAMILIES for found in ask_for_listeners(family, port)]
    except OSError:
        return list(listed_listeners(port))


def ask_for_listeners(family: int, port: int) -> Iterator[Tuple[int, str]]:
    """Ask the kernel. Raises OSError."""
    for message in diagnose(family, 1 << LISTEN, port):
        user, inode = USER_AND_INODE.unpack_from(message)
        yield user, str(inode)


def diagnose(family: int, states: int, port: int = 0, attributes: int = 0) -> Iterator[bytes]:
    """Yield the inet_diag_msg of each TCP socket of this network namespace that is in one of the
    states, a bit each, with the attributes, a bit each: sock_diag(7). Port 0 is any port.

    Raises OSError if the kernel does not report them.
    """
    request = REQUEST.pack(
        family, socket.IPPROTO_TCP, attributes, states, port.to_bytes(2, "big"), b""
    )
    size = HEADER.size + len(request)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(DIAG_TIMEOUT_S)
        kernel.send(HEADER.pack(size, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, 0, 0) + request)
        while True:
            answer, position = kernel.recv(DIAG_BYTES), 0
            while position < len(answer):
                size, kind = HEADER.unpack_from(answer, position)[:2]
                if kind == DONE:
                    return
                if kind == ERROR:
                    raise OSError("the kernel does not list sockets")
                yield answer[position + HEADER.size : position + size]
                position += max(HEADER.size, aligned(size))


def aligned(size: int) -> int:
    """Return where what follows a message or an attribute of this size begins: netlink(3)."""
    return (size + 3) & ~3


def listed_listeners(port: int) -> Iterator[Tuple[int, str]]:
    """Read /proc. Source: proc(5): column 2 is address:port in hex, 4 the state, 8 the user, 10 the
    inode."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, "rb") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] == b"0A" and int(row[1].rpartition(b":")[2], 16) == port:
                yield int(row[7]), row[9].decode()
