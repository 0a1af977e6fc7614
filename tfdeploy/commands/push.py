"""`tfdeploy push`: send the releases to the hosts that need them, and build environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.commands.environments import build_environments
from tfdeploy.commands.intent import UNWATCHED
from tfdeploy.commands.preflight.plan_warnings import placeholder_notes
from tfdeploy.errors import RunError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.shared.protocol.releases import FindRelease
from tfdeploy.transfer.send import send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.intent import Intent, Outcome, StartWatcher
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.shared.protocol.releases import ReleaseState


def push(
    fleet: Fleet,
    intent: Intent,
    watcher: StartWatcher = UNWATCHED,
    hosts: Sequence[str] | None = None,
) -> Outcome:
    """Send the source to every host, and each data set to the hosts that may read it, and build the
    environments; with `hosts` on those alone. An older release is not sent: it must be on the hosts
    of the plan.

    Return the result of `send` for each release, by its id; raises as `send` and
    `build_environments` do.
    """
    hosts = intent.hosts if hosts is None else hosts
    watcher.on_notes(placeholder_notes(intent))
    with watcher.moving(fleet.transfers):
        outcome = _send_releases(fleet, intent, watcher, hosts)
    watcher.on_sent(outcome, intent)
    specs = {host: spec for host, spec in intent.environments.items() if host in hosts}
    if specs:
        with watcher.moving(fleet.transfers):
            built = build_environments(fleet, specs)
        watcher.on_built(built, intent)
    return outcome


def _send_releases(
    fleet: Fleet, intent: Intent, watcher: StartWatcher, hosts: Sequence[str]
) -> Outcome:
    project, source = intent.inventory.project, intent.release
    if intent.options.release:
        refuse_missing_release(fleet, intent)
        outcome = {source.id: dict.fromkeys(hosts, False)}
    else:
        outcome = {source.id: send(fleet, project, source, hosts, watcher.on_wait)}
    for place, data in intent.data.items():
        readers = [host for host in intent.readers(place) if host in hosts]
        outcome[data.id] = send(fleet, project, data, readers, watcher.on_wait)
    return outcome


def refuse_missing_release(fleet: Fleet, intent: Intent) -> None:
    """Raise RunError if a host of the plan lacks the intent's release, or has changed it."""
    request = FindRelease(intent.inventory.project, intent.release.id)
    found = fleet.each(intent.plan.hosts, lambda agent: agent.ask(request))
    lacking = {host: state for host, state in found.items() if not state.present}
    if lacking:
        raise RunError(
            describe_lacking(intent.release.id, lacking),
            "tfdeploy runs shows the runs that the hosts still have: --release RUN",
        )


def describe_lacking(release: str, lacking: Mapping[str, ReleaseState]) -> str:
    """Return which hosts lack a release, and on which of them it was changed."""
    absent = [host for host, state in lacking.items() if not state.changed]
    parts = [f"release {release} is not on {fold_names(absent)}"] if absent else []
    parts += [
        f"release {release} was changed on {host} ({escape_line(state.changed)})"
        for host, state in lacking.items()
        if state.changed
    ]
    return ", and ".join(parts)
