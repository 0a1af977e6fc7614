"""A TCP connection to a host whose name is plain ASCII, as every address in hosts.toml is."""

from __future__ import annotations

import socket

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """Raises OSError, socket.timeout among them."""
    # As bytes: for a str Python loads its tables of international names, which cost 2 ms.
    address: Any = (host.encode(), port)
    return socket.create_connection(address, timeout=timeout_s)
