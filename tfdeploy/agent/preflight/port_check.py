"""The ports that a start needs: choose them, and check that hosts reach each other's (the verbs
`ports`, `listen_on_ports` and `try_ports`)."""

from __future__ import annotations

import select
import socket
import sys
import time
from typing import Dict, Iterator, List

from ...shared import parallel
from ...shared.protocol.preflight import Address, FreePorts, OpenPorts, TriedPorts
from ..machine import ports
from ..machine.sockets import connect, listen
from ..queue import places, resources
from ..refusal import Refusal

OPEN_S = 60.0
MAX_THREADS = 32


def free_ports(count: int, among: List[int]) -> FreePorts:
    """Choose free ports as `start` does. Raises Refusal if there are not enough."""
    return FreePorts(ports.choose(count, among, {*places.first_places()}), time.time())


def listen_on_ports(wanted: Dict[str, int]) -> Iterator[OpenPorts]:
    """Listen on the ports in `wanted`, given by task; for port 0, choose a free one as start does.

    Yields one answer when they are open. The ports stay open until the caller sends anything or
    hangs up, or for OPEN_S seconds.
    """
    listeners: Dict[str, socket.socket] = {}
    taken = []
    try:
        unknown = [*wanted.values()].count(0)
        chosen = ports.choose(unknown) if unknown else []
        for task, port in wanted.items():
            try:
                listeners[task] = _listen(port or chosen.pop(), task)
            except Refusal as refusal:
                taken.append((refusal.message, refusal.hint))
        open_by_task = {task: listener.getsockname()[1] for task, listener in listeners.items()}
        yield OpenPorts(open_by_task, taken)
        _accept_until_done([*listeners.values()])
    finally:
        for listener in listeners.values():
            listener.close()


def _listen(port: int, task: str) -> socket.socket:
    resources.require_free(port, task)
    try:
        return listen(port)
    except OSError as error:  # another process has just taken it
        raise Refusal("port {} for {}: {}".format(port, task, error.strerror)) from None


def _accept_until_done(listeners: List[socket.socket]) -> None:
    """Accept and close connections until the caller sends anything, or for OPEN_S seconds."""
    deadline = time.monotonic() + OPEN_S
    while time.monotonic() < deadline:
        left_s = deadline - time.monotonic()
        readable, _, _ = select.select([sys.stdin, *listeners], [], [], left_s)
        if sys.stdin in readable:
            return
        for listener in listeners:
            if listener in readable:
                listener.accept()[0].close()


def try_ports(at: List[Address], timeout_s: float) -> TriedPorts:
    """Connect to each address; `timeout_s` is for each."""

    def failure(endpoint: Address) -> str:
        try:
            connect(endpoint.address, endpoint.port, timeout_s).close()
        except OSError as error:
            return error.strerror or "no answer within {:g} s".format(timeout_s)
        return ""

    return TriedPorts(parallel.each(failure, at, MAX_THREADS))
