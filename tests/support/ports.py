"""Ports that no other test uses at the same time."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

ADDRESS = "127.0.0.1"
# Below the ports of outgoing connections and those that tfdeploy chooses for `ports = "auto"`:
# otherwise another test's run could choose a port before this test listens on it.
PORTS = range(10000, 20000)
# One file per port. The process that holds its lock owns the port, until it exits.
LOCKS = Path(tempfile.gettempdir()) / f"tfdeploy-test-ports-{os.getuid()}"
_held: dict[int, IO[str]] = {}


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens; no process on this machine gets the same port."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        if _claim(port):
            found.append(port)
    return found


def free_row(count: int) -> range:
    """Return ports that follow one another, as `free_ports` does."""
    while True:
        first = random.choice(PORTS[:-count])
        row = range(first, first + count)
        if all(map(_claim, row)):
            return row


def free_port() -> int:
    return free_ports(1)[0]


def free_addresses(count: int) -> list[str]:
    return [f"{ADDRESS}:{port}" for port in free_ports(count)]


def _claim(port: int) -> bool:
    if port in _held:
        return False
    LOCKS.mkdir(exist_ok=True)
    lock = (LOCKS / str(port)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    _held[port] = lock
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) != 0
