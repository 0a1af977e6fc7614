"""`tfdeploy push`: send the releases to the hosts that need them, and build environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.commands.environments import build_environments
from tfdeploy.errors import RunError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.shared.protocol.releases import FindRelease
from tfdeploy.transfer.send import send
from tfdeploy.transfer.shared_directory import group_by_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.plan import Intent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.transfer.send import OnFailed, OnProgress


def push(
    fleet: Fleet,
    intent: Intent,
    on_progress: OnProgress = lambda host, release, arrived: None,
    on_failed: OnFailed = lambda error: None,
    hosts: Sequence[str] | None = None,
) -> dict[str, dict[str, bool]]:
    """Send the releases and build the environments of every host, or of `hosts`; return and raise
    as `send_releases` does, and raise what `build_environments` does."""
    hosts = intent.hosts if hosts is None else hosts
    outcome = send_releases(fleet, intent, on_progress, on_failed, hosts)
    specs = {host: spec for host, spec in intent.environments.items() if host in hosts}
    build_environments(fleet, specs)
    return outcome


def send_releases(
    fleet: Fleet,
    intent: Intent,
    on_progress: OnProgress = lambda host, release, arrived: None,
    on_failed: OnFailed = lambda error: None,
    hosts: Sequence[str] | None = None,
) -> dict[str, dict[str, bool]]:
    """Send the source to every host, and each data set to the hosts that may read it; with `hosts`
    to those alone. An older release is not sent: it must be on the hosts of the plan.

    Return the result of `send` for each release, by its id; raises as `send` does.
    """
    project, source = intent.inventory.project, intent.release
    hosts = intent.hosts if hosts is None else hosts
    if intent.options.release:
        refuse_missing_release(fleet, intent)
        outcome = {source.id: dict.fromkeys(hosts, False)}
    else:
        outcome = {source.id: send(fleet, project, source, hosts, on_progress, on_failed)}
    for place, data in intent.data.items():
        readers = [host for host in intent.readers(place) if host in hosts]
        outcome[data.id] = send(fleet, project, data, readers, on_progress, on_failed)
    return outcome


def refuse_missing_release(fleet: Fleet, intent: Intent) -> None:
    """Raise RunError if a host of the plan lacks the intent's release."""
    request = FindRelease(intent.inventory.project, intent.release.id)
    found = fleet.each(intent.plan.hosts, lambda agent: agent.ask(request).present)
    lacking = [host for host, present in found.items() if not present]
    if lacking:
        raise RunError(
            f"release {intent.release.id} is not on {fold_names(lacking)}",
            "tfdeploy runs shows the runs that the hosts still have: --release RUN",
        )


def needs(intent: Intent, hosts: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
    """Return the releases that each host, or each of `hosts`, needs: the bytes to send, by id; 0 if
    another host receives them for it."""
    source = {} if intent.options.release else {intent.release.id: intent.release.size}
    sizes = {host: dict(source) for host in (intent.hosts if hosts is None else hosts)}
    for place, data in intent.data.items():
        for host in sizes.keys() & {*intent.readers(place)}:
            sizes[host][data.id] = data.size
    groups = group_by_store(intent.inventory, sizes)
    others = {host for others in groups.values() for host in others}
    return {
        host: dict.fromkeys(needed, 0) if host in others else needed
        for host, needed in sizes.items()
    }
