"""The TCP ports of this machine: which are free, and which process has one that is not."""

from __future__ import annotations

import os
import random
import socket
from typing import Collection, List, Sequence

from ..refusal import Refusal
from . import leases, process, sockets

# Below the ports that Linux uses for outgoing connections (ip(7), ip_local_port_range).
CANDIDATES = range(20000, 32768)


def require_free(port: int, task: str) -> None:
    """Raise Refusal unless `task` can have the port. The message names the holder if possible."""
    if is_free(port):
        return
    pid = process.port_holder(port)
    holder = process.describe(pid) if pid else _describe_hidden_holder(port)
    mark = process.read_mark(pid) if pid else None
    raise Refusal(
        "port {} for {} is taken by {}".format(port, task, holder),
        "stop what is left of it in the folder of project {} with tfdeploy stop --run {}".format(
            *mark[:2]
        )
        if mark
        else "stop that process; {}; or give the host other ports".format(leases.WAIT),
        busy=True,
    )


def _describe_hidden_holder(port: int) -> str:
    """Describe the holder of a port whose process /proc does not show."""
    user = process.port_user(port)
    if user is None:
        return "a connection or a process that does not listen on it"
    if user == os.geteuid():
        return "a hidden process of this user (in a container?)"
    return "a process of another user ({})".format(process.user_name(user))


def choose(count: int, among: Sequence[int] = (), awaited: Collection[str] = ()) -> List[int]:
    """Return `count` ports of `among` (default: CANDIDATES) that are free now, that no run has a
    lease on, and that are not among the `awaited` resources.

    The search starts at a random port, so that two processes that choose at the same moment choose
    different ports. Raises Refusal if there are not enough.
    """
    candidates = among or CANDIDATES
    first = random.randrange(len(candidates))
    chosen: List[int] = []
    for port in (*candidates[first:], *candidates[:first]):
        resource = leases.port(port)
        if resource not in awaited and leases.holder(resource) is None and is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    ends = min(candidates), max(candidates)
    raise Refusal("fewer than {} ports from {} to {} are free".format(count, *ends))


def is_free(port: int) -> bool:
    """Return whether a task can listen on the port.

    TensorFlow listens on all interfaces, so a listener on any of them blocks the port. Raises
    Refusal if this user may not open the port.
    """
    try:
        sockets.bind(port, socket.SO_REUSEADDR).close()
    except PermissionError:
        raise Refusal(
            "this user may not open port {}".format(port),
            "ports below 1024 are reserved for root: give the host other ports",
        ) from None
    except OSError:
        return False
    return True
