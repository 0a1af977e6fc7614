"""`tfdeploy push`: one release on every host, named by its content; whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import AgentError, HostError, TfdeployError, TransferFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.fleet import Fleet
    from tfdeploy.release import Release
    from tfdeploy.remote import Agent

COMMIT_TIMEOUT_S = 600.0
NO_SPACE = "No space left on device"


def push(
    fleet: Fleet,
    project: str,
    release: Release,
    on_progress: Callable[[str, float], None] = lambda host, share: None,
) -> dict[str, bool]:
    """Send `release` to every host that lacks it; for each host whether anything was sent.

    `on_progress(host, share)` is called from several threads. Raises the errors of all hosts.
    """
    return fleet.each(fleet.agents, lambda agent: _push(agent, project, release, on_progress))


def _push(
    agent: Agent, project: str, release: Release, on_progress: Callable[[str, float], None]
) -> bool:
    named = {"project": project, "release": release.id}
    offer = agent.ask("offer", named)
    if not offer["present"]:
        try:
            _send(agent, project, release, offer, lambda share: on_progress(agent.host, share))
        except (TransferFailed, AgentError) as error:
            # Two pushes of one release share a folder, and the faster one takes it away.
            if not agent.ask("offer", named)["present"]:
                _make_room(agent, named, error)
                raise
    on_progress(agent.host, 1.0)
    return not offer["present"]


def _make_room(agent: Agent, named: dict[str, str], error: HostError) -> None:
    """What arrived of a push that the network broke helps the next one; on a full disk it is only
    in the way of what trains there."""
    if NO_SPACE in error.message:
        error.hint = "tfdeploy prune makes room there, tfdeploy runs shows who takes it"
        with suppress(TfdeployError):
            agent.ask("abandon", named)


def _send(
    agent: Agent,
    project: str,
    release: Release,
    offer: dict[str, Any],
    on_progress: Callable[[float], None],
) -> None:
    """rsync, then let the host compare hashes. Equal size and time can hide a change: then once
    more by content. What still differs has changed here since it was hashed."""
    manifest = {path: list(entry) for path, entry in release.manifest.items()}
    body = {"project": project, "release": release.id, "manifest": manifest}
    wrong: list[str] = []
    for checksum in (False, True):
        agent.transport.push(
            release.root,
            offer["incoming"],
            list(release.manifest),
            base=offer.get("base"),
            checksum=checksum,
            on_progress=on_progress,
        )
        wrong = agent.ask("commit", body, COMMIT_TIMEOUT_S)["wrong"]
        if not wrong:
            return
    raise TransferFailed(
        agent.host,
        f"{wrong[0]} changed while it was pushed (and {len(wrong) - 1} more)",
        "push again when nothing writes into the source folder, or exclude what is written",
    )
