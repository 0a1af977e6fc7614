"""Check from this host which tasks of a run answer, and whether the chief's supervisor does."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Iterator, List, Sequence

from ...shared import parallel
from ...shared.protocol.preflight import REFUSED, Peer, PeerHealth, PeersAsked, StillRunning
from ...shared.records import NOT_GRPC, OPEN, UNREACHABLE, Launch
from .. import paths
from ..machine import grpc_health, guard, lock, process, stored
from ..machine.peers import refusing_user
from ..refusal import Refusal
from ..supervision.heartbeat import client, signing
from ..supervision.heartbeat.messages import Question

MAX_THREADS = 32
GUARD_REFUSES = (
    "tfdeploy's guard refused a process of user {}: those of the task belong to user {} of the "
    "same machine"
)


def peers(project: str, run: str, peers_asked: List[Peer], timeout_s: float) -> PeersAsked:
    """Probe the ports of tasks on other hosts, then ask the chief's supervisor."""
    found = probe_tasks(peers_asked, timeout_s, _source_ports(project, run))
    if _is_guarded(project, run):
        found = [*map(explain_refusal, peers_asked, found)]
    return PeersAsked(found, chief_unreachable_reason(project, run, timeout_s))


def probe_tasks(
    peers: List[Peer], timeout_s: float, source_ports: Sequence[int] = (0,)
) -> List[PeerHealth]:
    """Probe the ports of these tasks, all at the same time."""

    def probe(peer: Peer) -> PeerHealth:
        health = grpc_health.probe(peer.address, peer.port, peer.name, timeout_s, source_ports)
        return PeerHealth(task=peer.task, verdict=health.verdict, detail=health.detail)

    return parallel.each(probe, peers, MAX_THREADS)


def explain_refusal(peer: Peer, found: PeerHealth) -> PeerHealth:
    """Return what was found, with the reason if a guarded task of another user of this host resets
    the connections of this user."""
    # The kernel accepts a connection, even if the guard then resets it.
    reset = found.verdict in (UNREACHABLE, NOT_GRPC) or not peer.name
    other = refusing_user(peer.address, peer.port) if reset else ""
    if not other:
        return found
    own = process.user_name(os.geteuid())
    return PeerHealth(peer.task, REFUSED, GUARD_REFUSES.format(own, other))


def _is_guarded(project: str, run: str) -> bool:
    return any(launch.endpoint.network != OPEN for launch in _live_launches(project, run))


def _live_launches(project: str, run: str) -> Iterator[Launch]:
    """Yield the launches of the tasks that run here, without those that can't be read."""
    for task_dir in _live_tasks(project, run):
        with suppress(Refusal):
            yield stored.launch(task_dir)


def _source_ports(project: str, run: str) -> Sequence[int]:
    """Return the ports from which a task on this host connects to others."""
    for task_dir in _live_tasks(project, run):
        ports = guard.read_ports(task_dir)
        if ports is not None:
            return guard.some_ports(ports)
    return (0,)


def _live_tasks(project: str, run: str) -> Iterator[str]:
    """Yield the folders of the tasks that run here. Those of tasks that a resume or `scale` has
    moved to another host stay, with a launch that no longer holds."""
    folders = (paths.task(project, run, task) for task in paths.tasks(project, run))
    return filter(lock.is_live, folders)


def unfinished_tasks(project: str, run: str, task: str, timeout_s: float) -> StillRunning:
    """Ask the supervisor of `task`, the chief, which tasks have not reported their end to it."""
    task_dir = paths.task(project, run, task)
    launch = stored.launch(task_dir)
    try:
        answer, _ = client.request(launch.heartbeat, Question(), timeout_s)
        return StillRunning(answer.unfinished)
    except (OSError, signing.Untrusted):  # it has ended, and has written its last state
        others = [other for other in launch.heartbeat.tasks if other != task]
        all_ended = stored.state(task_dir).others_ended
        return StillRunning([] if all_ended else others)


def chief_unreachable_reason(project: str, run: str, timeout_s: float) -> str:
    """Return why this host does not reach the chief's supervisor; "" if it does.

    The tasks of this host get the state of the run from that supervisor.
    """
    for launch in _live_launches(project, run):
        try:
            client.request(launch.heartbeat, Question(known_lists=None), timeout_s)
        except (OSError, signing.Untrusted) as error:
            return str(getattr(error, "strerror", None) or error)
        return ""
    return ""
