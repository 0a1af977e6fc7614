"""Both ends of a TCP connection between hosts."""

from __future__ import annotations

import socket

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Optional


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to a host whose name is plain ASCII, as every address in hosts.toml is. Raises
    OSError, socket.timeout among them."""
    # As bytes: for a str Python loads its tables of international names, which cost 2 ms.
    address: Any = (host.encode(), port)
    return socket.create_connection(address, timeout=timeout_s)


def listen(port: int, backlog: Optional[int] = None) -> socket.socket:
    """A listener at every address of this host, IPv6 among them where there is any: the addresses
    of the other hosts say which they dial. Raises OSError where the port is taken."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=both)
