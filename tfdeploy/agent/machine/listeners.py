"""Which sockets of this host listen, by the kernel's answer: sock_diag(7)."""

from __future__ import annotations

import socket
import struct

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

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


def of_port(port: int) -> List[Tuple[int, str]]:
    """Return the user id and the inode of each socket that listens on a TCP port of this host.

    Asks the kernel for only these. A kernel, or a sandbox, without that question has tables of all
    sockets, which are read instead: a hundred times slower on a machine with much memory.
    """
    try:
        return [found for family in FAMILIES for found in ask(family, port)]
    except OSError:
        return list(listed(port))


def ask(family: int, port: int) -> Iterator[Tuple[int, str]]:
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


def listed(port: int) -> Iterator[Tuple[int, str]]:
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
