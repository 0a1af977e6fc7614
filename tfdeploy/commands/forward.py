"""`tfdeploy forward`: open a port of a task's host on the controller, for its own programs only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed, PlanError
from tfdeploy.transport.openssh import foreground

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.planning.plan import Placement

MAX_PORT = 65535
PORTS = re.compile("([0-9]{1,5})(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Forwarding:
    """A port of a host, and the port of the controller that is connected to it."""

    port: int
    local_port: int

    @property
    def url(self) -> str:
        return f"http://{foreground.LOOPBACK}:{self.local_port}"

    @classmethod
    def parse(cls, text: str) -> Forwarding:
        """Parse `PORT` or `PORT:LOCALPORT`. Raises PlanError."""
        match = PORTS.fullmatch(text)
        port, local_port = (int(n) for n in (match[1], match[2] or match[1])) if match else (0, 0)
        if not (0 < port <= MAX_PORT and 0 < local_port <= MAX_PORT):
            raise PlanError(
                f'found "{text}"; expected PORT or PORT:LOCALPORT, each from 1 to {MAX_PORT}',
                "for example: tfdeploy forward worker:0 6006:16006",
            )
        return cls(port, local_port)


def forward(
    inventory: Inventory,
    placement: Placement,
    forwarding: Forwarding,
    on_open: Callable[[Forwarding], None],
) -> None:
    """Forward a port of a task's host until the connection ends; call `on_open` once it is open.

    A port of a host without SSH is open on the controller already. Raises CommandFailed when the
    connection ends, RunError if the controller's port is taken.
    """
    host = inventory.host(placement.host)
    if not host.uses_ssh:
        on_open(Forwarding(forwarding.port, forwarding.port))
        return
    code = foreground.forward(
        host, inventory, forwarding.port, forwarding.local_port, lambda: on_open(forwarding)
    )
    raise CommandFailed(host.name, f"the connection ended: ssh exited with {code}")
