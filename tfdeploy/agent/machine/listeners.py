"""Which sockets of this host listen or are connected, by the kernel's tables: proc(5).

Reading one takes some milliseconds. It needs no privilege.
"""

from __future__ import annotations

from typing import Iterator, List, Set, Tuple

from ...shared.protocol.record import Record

# Source: net/tcp_states.h.
ESTABLISHED, CLOSE, LISTEN = 1, 7, 10
# Each protocol, and the state of a socket at which anybody may arrive.
OPEN = (("tcp", LISTEN), ("udp", CLOSE))


class ListeningSocket(Record):
    """A socket at which anybody may arrive."""

    inode: str
    port: int
    protocol: str


def of_port(port: int) -> List[Tuple[int, str]]:
    """Return the user id and the inode of each socket that listens on a TCP port of this host."""
    return [(user, inode) for each, user, inode in _sockets("tcp", LISTEN) if each == port]


def connected_to(port: int) -> Set[str]:
    """Return the inodes of this host's TCP connections to a port, of any host."""
    rows = _sockets("tcp", ESTABLISHED, of_peer=True)
    return {inode for each, _, inode in rows if each == port}


def of_user(user: int) -> List[ListeningSocket]:
    """Return the sockets of a user at which anybody may arrive: TCP that listens, and UDP without a
    peer."""
    return [
        ListeningSocket(inode, port, protocol)
        for protocol, state in OPEN
        for port, owner, inode in _sockets(protocol, state)
        if owner == user
    ]


def _sockets(protocol: str, state: int, of_peer: bool = False) -> Iterator[Tuple[int, int, str]]:
    """Yield the port, or its peer's, the user and the inode of each socket in a state. Source:
    proc(5): column 1 (from 0) is address:port in hex, 2 the peer's, 3 the state, 7 the user, 9 the
    inode."""
    for table in (protocol, protocol + "6"):
        try:
            with open("/proc/net/" + table, "rb") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:  # without IPv6
            continue
        for row in rows:
            if int(row[3], 16) == state:
                address = row[2 if of_peer else 1]
                yield int(address.rpartition(b":")[2], 16), int(row[7]), row[9].decode()
