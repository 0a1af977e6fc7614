"""Connect to a host by several quick tries: a host that is up answers the first one that arrives.

The kernel repeats a lost packet after 1, 3 and 7 seconds. A new try repeats it earlier, so that a
host that is silent is given up in a third of the time.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paramiko.ssh_exception import NoValidConnectionsError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Patience:
    """How many seconds each try to connect may take, and then the handshake."""

    tries_s: tuple[float, ...]
    handshake_s: float


# A busy host accepts a connection at once, because its kernel does, but needs time for a handshake.
PATIENT = Patience((0.5, 1.0, 2.0), 10.0)
# For a host that was silent a moment ago. One that accepts a connection is back, and often busy.
IMPATIENT = Patience((0.5, 0.5), PATIENT.handshake_s)


class NoAnswer(TimeoutError):
    """The host gave no answer within `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds = seconds


class HostSilent(NoAnswer):
    """Not even the host's kernel answered."""


def dial(hostname: str, port: int, tries_s: Iterable[float]) -> socket.socket:
    """Return a connected socket; each try of an address has this many seconds.

    Raises NoValidConnectionsError if every address refused, HostSilent if none answered, and
    OSError if the name is unknown.
    """
    found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys((family, address) for family, *_, address in found)
    begin = time.monotonic()
    for try_s in tries_s:
        refusals: dict[Any, Exception] = {}
        for family, address in addresses:
            try:
                return _connect(family, address, try_s)
            except TimeoutError:
                continue
            except OSError as error:
                refusals[address[0], address[1]] = error
        if len(refusals) == len(addresses):
            raise NoValidConnectionsError(refusals)
    raise HostSilent(round(time.monotonic() - begin, 1))


def _connect(family: int, address: tuple[Any, ...], timeout_s: float) -> socket.socket:
    connected = socket.socket(family)
    try:
        connected.settimeout(timeout_s)
        connected.connect(address)
        connected.settimeout(None)
    except BaseException:
        connected.close()
        raise
    return connected
