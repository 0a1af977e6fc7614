"""Count the bytes that TCP connections of given processes have moved, without any privilege.

/proc has no network counters of a process. But the kernel counts the bytes of each TCP socket and
reports them by sock_diag(7), as it does to `ss -ti`; /proc/PID/fd says whose socket it is, by its
inode.
"""

from __future__ import annotations

import os
import re
import struct

from ...shared import TYPE_CHECKING
from ..machine import listeners

if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, Optional, Tuple

    Bytes = Tuple[int, int]

# Source: linux/inet_diag.h, linux/tcp.h.
INET_DIAG_INFO = 2  # the attribute that holds a struct tcp_info, and its bit in a request
MESSAGE_BYTES = 72  # of an inet_diag_msg, before its attributes
ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
ACKED_AND_RECEIVED = struct.Struct("=120xQQ")  # tcp_info: tcpi_bytes_acked, tcpi_bytes_received
ALL_STATES = 0xFFFFFFFF
SOCKET_LINK = re.compile(r"socket:\[([0-9]+)\]")


def read_all() -> Optional[Dict[int, Bytes]]:
    """Return what each TCP socket of this network namespace has received and sent, by its inode.

    Bytes count as sent when the other end has acknowledged them. Returns None if the kernel does
    not report it.
    """
    try:
        return {inode: moved for family in listeners.FAMILIES for inode, moved in _ask(family)}
    except (OSError, struct.error):
        return None


def socket_inodes(pids: Iterable[int]) -> Iterator[Tuple[int, int]]:
    """Yield each process and the inode of each of its listeners. A process that ends is skipped."""
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


def _ask(family: int) -> Iterator[Tuple[int, Bytes]]:
    for message in listeners.diagnose(family, ALL_STATES, attributes=1 << (INET_DIAG_INFO - 1)):
        counted = _bytes(message)
        if counted:
            yield listeners.USER_AND_INODE.unpack_from(message)[1], counted


def _bytes(message: bytes) -> Optional[Bytes]:
    """Return the bytes received and sent; None for a socket that listens, or of an old kernel."""
    position = MESSAGE_BYTES
    while position + ATTRIBUTE.size <= len(message):
        size, kind = ATTRIBUTE.unpack_from(message, position)
        content = message[position + ATTRIBUTE.size : position + size]
        if kind == INET_DIAG_INFO and len(content) >= ACKED_AND_RECEIVED.size:
            acked, received = ACKED_AND_RECEIVED.unpack_from(content)
            return received, acked
        position += max(ATTRIBUTE.size, listeners.aligned(size))
    return None
