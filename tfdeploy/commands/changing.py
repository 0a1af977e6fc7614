"""Of all controllers one at a time changes a run: the host of its chief decides."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import HostError, RunBeingChanged, TfdeployError
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.protocol.runs import ChangeRun

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator

    from tfdeploy.hosts.agent_client import Agent, AnswerStream
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.message import Done

RELEASE_S = 10.0


def user_at_controller() -> str:
    """Return who types, for those who ask for it on other controllers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@contextmanager
def changing(
    run: Run, without: Collection[str] = (), cancel: threading.Event | None = None
) -> Iterator[Callable[[], None]]:
    """Keep other controllers from changing a run until the end of the block, or until the function
    that this yields is called. The chief's host decides, or the first one that is not left out.

    Raises RunBeingChanged, with who changes it, and Cancelled soon after another thread has set
    `cancel`. A host that can't be asked decides nothing: what is wrong with it is said by the
    command.
    """
    hosts = [run.plan.chief.host, *run.plan.hosts]
    host = next((host for host in hosts if host not in without), hosts[0])
    inventory = run.inventory.copy_with({"hosts": (run.inventory.host(host),)})
    by = f"{user_at_controller()} in {run.inventory.file.parent}"

    def hold(agent: Agent) -> AnswerStream[Done]:
        held = agent.stream(ChangeRun(inventory.project, run.id, by), RELEASE_S)
        held.open()
        return held

    with Fleet(inventory, cancel=cancel) as fleet, ExitStack() as stack:
        held = fleet.outcomes([host], hold)[host]
        if isinstance(held, RunBeingChanged):
            raise held
        if not isinstance(held, TfdeployError):
            stack.callback(_release, held)
        yield stack.close


def _release(held: AnswerStream[Done]) -> None:
    """End the stream, and wait until the host has released the lock: the next command wants it."""
    held.finish()
    with suppress(HostError):
        for _ in held:
            pass
