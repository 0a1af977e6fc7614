"""Count the bytes that TCP connections of given processes have moved, without any privilege.

/proc has no network counters of a process. But the kernel counts the bytes of each TCP socket and
reports them by sock_diag(7), as it does to `ss -ti`; /proc/PID/fd says whose socket it is, by its
inode.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from contextlib import closing

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, Optional, Tuple

    Bytes = Tuple[int, int]

# Source: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
REQUEST_AND_DUMP = 0x1 | 0x300
ERROR, DONE = 2, 3
INET_DIAG_INFO = 2  # the attribute that holds a struct tcp_info, and its bit in a request
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
REQUEST = struct.Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, attributes, states
MESSAGE_BYTES, INODE = 72, struct.Struct("=68xI")  # inet_diag_msg, and its last field
ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
ACKED_AND_RECEIVED = struct.Struct("=120xQQ")  # tcp_info: tcpi_bytes_acked, tcpi_bytes_received
ALL_STATES = 0xFFFFFFFF
RECEIVE_BYTES = 1 << 17
TIMEOUT_S = 2.0
SOCKET_LINK = re.compile(r"socket:\[([0-9]+)\]")


def read_all() -> Optional[Dict[int, Bytes]]:
    """Return what each TCP socket of this network namespace has received and sent, by its inode.

    Bytes count as sent when the other end has acknowledged them. Returns None if the kernel does
    not report it.
    """
    try:
        with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)) as diag:
            diag.settimeout(TIMEOUT_S)
            found: Dict[int, Bytes] = {}
            for family in (socket.AF_INET, socket.AF_INET6):
                found.update(_ask(diag, family))
            return found
    except (OSError, struct.error):
        return None


def socket_inodes(pids: Iterable[int]) -> Iterator[Tuple[int, int]]:
    """Yield each process and the inode of each of its sockets. A process that ends is skipped."""
    for pid in pids:
        folder = "/proc/{}/fd".format(pid)
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            inode = _inode(os.path.join(folder, name))
            if inode is not None:
                yield pid, inode


def _inode(link: str) -> Optional[int]:
    try:
        match = SOCKET_LINK.match(os.readlink(link))
    except OSError:  # it was closed meanwhile
        return None
    return int(match[1]) if match else None


def _ask(diag: socket.socket, family: int) -> Iterator[Tuple[int, Bytes]]:
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), ALL_STATES)
    size = HEADER.size + len(request)
    diag.send(HEADER.pack(size, SOCK_DIAG_BY_FAMILY, REQUEST_AND_DUMP, family, 0) + request)
    while True:
        for kind, content in _messages(diag.recv(RECEIVE_BYTES)):
            if kind == DONE:
                return
            if kind == ERROR:
                raise OSError("the kernel has no tcp_diag")
            counted = _bytes(content)
            if counted:
                yield INODE.unpack_from(content)[0], counted


def _messages(data: bytes) -> Iterator[Tuple[int, bytes]]:
    position = 0
    while position < len(data):
        size, kind = HEADER.unpack_from(data, position)[:2]
        yield kind, data[position + HEADER.size : position + size]
        position += max(HEADER.size, _aligned(size))


def _bytes(message: bytes) -> Optional[Bytes]:
    """Return the bytes received and sent; None for a socket that listens, or of an old kernel."""
    position = MESSAGE_BYTES
    while position + ATTRIBUTE.size <= len(message):
        size, kind = ATTRIBUTE.unpack_from(message, position)
        content = message[position + ATTRIBUTE.size : position + size]
        if kind == INET_DIAG_INFO and len(content) >= ACKED_AND_RECEIVED.size:
            acked, received = ACKED_AND_RECEIVED.unpack_from(content)
            return received, acked
        position += max(ATTRIBUTE.size, _aligned(size))
    return None


def _aligned(size: int) -> int:
    return (size + 3) & ~3
