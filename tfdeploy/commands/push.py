"""`tfdeploy push`: send the releases to the hosts that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.transfer.send import send

if TYPE_CHECKING:
    from tfdeploy.commands.plan import Intent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.transfer.send import OnFailed, OnProgress


def push(
    fleet: Fleet,
    intent: Intent,
    on_progress: OnProgress = lambda host, release, arrived: None,
    on_failed: OnFailed = lambda error: None,
) -> dict[str, dict[str, bool]]:
    """Send the source to every host, and each data set to the hosts that may read it.

    Return the result of `send` for each release, by its id; raises as `send` does.
    """
    project, source = intent.inventory.project, intent.release
    outcome = {source.id: send(fleet, project, source, fleet.agents, on_progress, on_failed)}
    for place, data in intent.data.items():
        readers = intent.readers(place)
        outcome[data.id] = send(fleet, project, data, readers, on_progress, on_failed)
    return outcome


def needs(intent: Intent) -> dict[str, dict[str, int]]:
    """Return the releases that each host needs: their sizes in bytes, by id."""
    sizes = {host.name: {intent.release.id: intent.release.size} for host in intent.inventory.hosts}
    for place, data in intent.data.items():
        for host in intent.readers(place):
            sizes[host][data.id] = data.size
    return sizes
