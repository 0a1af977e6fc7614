"""Which sockets of this host listen or are connected, by the kernel's answer: sock_diag(7), as
`ss` shows it. It needs no privilege."""

from __future__ import annotations

import socket
import struct
from typing import Iterator, List, Set, Tuple

from ...shared.protocol.record import Record

# Sources: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST = 4, 20, 0x301
ERROR, DONE = 2, 3
FAMILIES = (socket.AF_INET, socket.AF_INET6)
LISTEN, CLOSE, ESTABLISHED = 10, 7, 1
# The protocol's number, and the state of a socket at which anybody may arrive.
PROTOCOLS = {"tcp": (socket.IPPROTO_TCP, LISTEN), "udp": (socket.IPPROTO_UDP, CLOSE)}
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
# inet_diag_req_v2: family, protocol, attributes, states, port, the peer's port; the rest is 0
REQUEST = struct.Struct("=BBBxI2s2s44x")
PORT = slice(4, 6)  # of an inet_diag_msg: the socket's own
USER_AND_INODE = struct.Struct("=64xII")  # the last fields of an inet_diag_msg
PEER_COLUMN = 2  # of /proc/net/tcp
DIAG_TIMEOUT_S = 2.0
DIAG_BYTES = 1 << 17


class ListeningSocket(Record):
    """A socket at which anybody may arrive."""

    inode: str
    port: int
    protocol: str


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


def connected_to(port: int) -> Set[str]:
    """Return the inodes of this host's TCP connections to a port, of any host. As above, the
    kernel's tables are read if it has no answer."""
    try:
        messages = [m for f in FAMILIES for m in diagnose(f, 1 << ESTABLISHED, peer_port=port)]
        return {str(USER_AND_INODE.unpack_from(message)[1]) for message in messages}
    except OSError:
        rows = listed_sockets("tcp", ESTABLISHED, PEER_COLUMN)
        return {inode for each, _, inode in rows if each == port}


def of_user(user: int) -> List[ListeningSocket]:
    """Return the sockets of a user at which anybody may arrive: TCP that listens, and UDP without a
    peer. As above, the kernel's tables are read if it has no answer."""
    found: List[ListeningSocket] = []
    for protocol, (number, state) in PROTOCOLS.items():
        try:
            for family in FAMILIES:
                for message in diagnose(family, 1 << state, protocol=number):
                    owner, inode = USER_AND_INODE.unpack_from(message)
                    port = int.from_bytes(message[PORT], "big")
                    if owner == user:
                        found.append(ListeningSocket(str(inode), port, protocol))
        except OSError:
            rows = listed_sockets(protocol, state)
            found += [
                ListeningSocket(inode, port, protocol)
                for port, owner, inode in rows
                if owner == user
            ]
    return found


def diagnose(
    family: int,
    states: int,
    port: int = 0,
    attributes: int = 0,
    protocol: int = socket.IPPROTO_TCP,
    peer_port: int = 0,
) -> Iterator[bytes]:
    """Yield the inet_diag_msg of each TCP socket of this network namespace that is in one of the
    states, a bit each, with the attributes, a bit each: sock_diag(7). Port 0 is any port; so is
    port 0 of the peer.

    Raises OSError if the kernel does not report them.
    """
    ports = port.to_bytes(2, "big"), peer_port.to_bytes(2, "big")
    request = REQUEST.pack(family, protocol, attributes, states, *ports)
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
    """Read /proc instead."""
    for each, user, inode in listed_sockets("tcp", LISTEN):
        if each == port:
            yield user, inode


def listed_sockets(protocol: str, state: int, column: int = 1) -> Iterator[Tuple[int, int, str]]:
    """Yield the port, or its peer's, the user and the inode of each socket in a state. Source:
    proc(5): column 1 (from 0) is address:port in hex, 2 the peer's, 3 the state, 7 the user, 9 the
    inode."""
    for table in (protocol, protocol + "6"):
        try:
            with open("/proc/net/" + table, "rb") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if int(row[3], 16) == state:
                yield int(row[column].rpartition(b":")[2], 16), int(row[7]), row[9].decode()
