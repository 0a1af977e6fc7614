"""Which sockets of this host listen or are connected, by the kernel's answer: sock_diag(7), as
`ss` shows it. It needs no privilege."""

from __future__ import annotations

import socket
import struct
from typing import Iterator, List, Set, Tuple

from ...shared.filesystem import read_if_possible
from ...shared.protocol.record import Record

Found = Tuple[int, int, str]

# Sources: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST = 4, 20, 0x301
ERROR, DONE = 2, 3
FAMILIES = (socket.AF_INET, socket.AF_INET6)
LISTEN, CLOSE, ESTABLISHED = 10, 7, 1
NUMBERS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}
# The state of a socket at which anybody may arrive: TCP that listens, and UDP without a peer.
OPEN_STATES = {"tcp": LISTEN, "udp": CLOSE}
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
# inet_diag_req_v2: family, protocol, states, port, the peer's port; the rest is 0
REQUEST = struct.Struct("=BBxxI2s2s44x")
PORT = slice(4, 6)  # of an inet_diag_msg: the socket's own
USER_AND_INODE = struct.Struct("=64xII")  # the last fields of an inet_diag_msg
DIAG_TIMEOUT_S = 2.0
DIAG_BYTES = 1 << 17


class ListeningSocket(Record):
    """A socket at which anybody may arrive."""

    inode: str
    port: int
    protocol: str


def of_port(port: int) -> List[Tuple[int, str]]:
    """Return the user id and the inode of each socket that listens on a TCP port of this host."""
    return [(user, inode) for _, user, inode in find("tcp", LISTEN, port)]


def connected_to(port: int) -> Set[str]:
    """Return the inodes of this host's TCP connections to a port, of any host."""
    return {inode for _, _, inode in find("tcp", ESTABLISHED, peer_port=port)}


def of_user(user: int) -> List[ListeningSocket]:
    """Return the sockets of a user at which anybody may arrive."""
    return [
        ListeningSocket(inode, port, protocol)
        for protocol, state in OPEN_STATES.items()
        for port, owner, inode in find(protocol, state)
        if owner == user
    ]


def find(protocol: str, state: int, port: int = 0, peer_port: int = 0) -> List[Found]:
    """Return the port, the user and the inode of each socket in a state that has this port, and
    whose peer has that one; 0 is any port.

    Asks the kernel for only these. A kernel, or a sandbox, without that question has tables of all
    sockets, which are read instead: a hundred times slower on a machine with much memory.
    """
    try:
        return [*ask(protocol, state, port, peer_port)]
    except OSError:
        return [*read_tables(protocol, state, port, peer_port)]


def ask(protocol: str, state: int, port: int, peer_port: int) -> Iterator[Found]:
    """Ask the kernel. Raises OSError."""
    for family in FAMILIES:
        for message in diagnose(family, NUMBERS[protocol], state, port, peer_port):
            user, inode = USER_AND_INODE.unpack_from(message)
            yield int.from_bytes(message[PORT], "big"), user, str(inode)


def diagnose(family: int, number: int, state: int, port: int, peer_port: int) -> Iterator[bytes]:
    """Yield the inet_diag_msg of each socket of this network namespace: sock_diag(7).

    Raises OSError if the kernel does not report them.
    """
    ports = port.to_bytes(2, "big"), peer_port.to_bytes(2, "big")
    request = REQUEST.pack(family, number, 1 << state, *ports)
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
                # The next message begins at a multiple of 4: netlink(3).
                position += max(HEADER.size, (size + 3) & ~3)


def read_tables(protocol: str, state: int, port: int, peer_port: int) -> Iterator[Found]:
    """Read /proc instead. Source: proc(5): column 1 (from 0) is address:port in hex, 2 the peer's,
    3 the state, 7 the user, 9 the inode."""
    for table in (protocol, protocol + "6"):
        for line in read_if_possible("/proc/net/" + table).splitlines()[1:]:
            row = line.split()
            own, peer = (int(row[column].rpartition(b":")[2], 16) for column in (1, 2))
            if int(row[3], 16) == state and port in (0, own) and peer_port in (0, peer):
                yield own, int(row[7]), row[9].decode()
