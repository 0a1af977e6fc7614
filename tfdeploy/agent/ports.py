"""Which TCP ports of this machine are free, and who has one that isn't?"""

from __future__ import annotations

import socket

from . import TYPE_CHECKING, leases, process
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import List

# Below the ports that Linux gives to outgoing connections (ip(7), ip_local_port_range).
CHOICE = range(20000, 32768)


def check(port: int, task: str) -> None:
    """Raises Refusal, naming the holder where it can be seen, unless `task` can have the port."""
    if is_free(port):
        return
    pid = process.holder(port)
    held = process.described(pid) if pid else "a process of another user"
    left = process.marked(pid) if pid else None
    sweep = "end what is left of it with tfdeploy stop --run {}".format(left[1]) if left else ""
    raise Refusal(
        "port {} for {} is taken by {}".format(port, task, held),
        sweep or "stop that one, or give the host other ports",
    )


def choose(count: int) -> List[int]:
    """So many ports that are free now, and on lease to no run; from a place of chance on, so that
    two who choose at the same moment choose apart. Raises Refusal."""
    import random  # for this alone, and every start comes by here to look at its ports

    first = random.randrange(len(CHOICE))
    found = []
    for port in (*CHOICE[first:], *CHOICE[:first]):
        if leases.holder("port/{}".format(port)) is None and is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise Refusal("no {} ports are free from {} on".format(count, CHOICE[0]))


def is_free(port: int) -> bool:
    """TensorFlow listens on every interface, so a listener on any of them is in its way."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except PermissionError:
            raise Refusal(
                "port {} may not be opened by this user".format(port),
                "ports below 1024 are root's: give the host others",
            ) from None
        except OSError:
            return False
    return True
