"""Ports of this host from which only this user can connect, as long as this process lives.

Sockets that are bound to a port with SO_REUSEPORT share it only with sockets of the same user, also
if those connect to others: socket(7), and inet_csk_bind_conflict in Linux. So a connection from
such a port shows other hosts the user, without a question for each connection. The task's processes
connect from them (inside/preload/sockets.c).
"""

from __future__ import annotations

import os
import socket

from ....shared import TYPE_CHECKING, filesystem
from ... import paths

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    Range = Tuple[int, int]

COUNT = 128  # for each server that a task connects to, within the minute of TIME_WAIT
LOWEST, HIGHEST = 10_240, 19_999  # below those of `ports = "auto"`, and of other connections
TRIES = 50
FEW = 8


def hold(task_dir: str) -> Range:
    """Hold COUNT free ports for this user until this process ends; return the first and the last.

    The task's directory names them. Raises OSError if there are no such ports.
    """
    first, last = _hold()
    text = "{} {}".format(first, last)
    filesystem.replace_file(paths.source_ports(task_dir), text.encode())
    return first, last


def read(task_dir: str) -> Optional[Range]:
    """Return the ports of a task; None if it has none."""
    try:
        text = filesystem.read_bytes(paths.source_ports(task_dir))
    except OSError:
        return None
    first, last = map(int, text.split())
    return first, last


def some(ports: Range) -> List[int]:
    """Return a few of the ports: others may have a connection from one of them already."""
    first, last = ports
    start, count = os.urandom(1)[0], last - first + 1
    return [first + (start + number) % count for number in range(min(count, FEW))]


def _hold() -> Range:
    for _ in range(TRIES):
        first = LOWEST + int.from_bytes(os.urandom(2), "big") % (HIGHEST - LOWEST - COUNT)
        held: List[socket.socket] = []
        try:
            for port in range(first, first + COUNT):
                held.append(_bind(port))
        except OSError:  # one of them is in use
            for each in held:
                each.close()
            continue
        _held.extend(held)
        return first, first + COUNT - 1
    raise OSError("no {} free ports in a row".format(COUNT))


def _bind(port: int) -> socket.socket:
    """Return a socket that is bound to a port of this user. Raises OSError."""
    dual_stack = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET)
    try:
        if dual_stack:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound


_held: List[socket.socket] = []
