"""A port that drops packets, as a host that is off: its backlog is full, and nothing accepts."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from support.ports import ADDRESS, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL_S = 0.2


@contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that answers no connection."""
    port = free_port()
    listener = socket.create_server((ADDRESS, port), backlog=0)
    waiting = [listener]
    try:
        with suppress(TimeoutError):
            while True:
                waiting.append(socket.create_connection((ADDRESS, port), FULL_S))
        yield port
    finally:
        for each in waiting:
            each.close()
