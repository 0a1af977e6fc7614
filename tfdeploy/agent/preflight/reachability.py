"""Check from this host which tasks of a run answer, and whether the chief's supervisor does."""

from __future__ import annotations

from typing import List, Sequence

from ...shared import parallel, records
from ...shared.protocol.preflight import Peer, PeerHealth, PeersAsked, StillRunning
from ...shared.records import Launch, TaskState
from .. import paths
from ..machine import grpc_health, guard
from ..supervision import heartbeat, signing

MAX_THREADS = 32


def peers(project: str, run: str, peers_asked: List[Peer], timeout_s: float) -> PeersAsked:
    """Probe the ports of tasks on other hosts, then ask the chief's supervisor."""
    found = probe_tasks(peers_asked, timeout_s, _source_ports(project, run))
    return PeersAsked(found, chief_unreachable_reason(project, run, timeout_s))


def probe_tasks(
    peers: List[Peer], timeout_s: float, source_ports: Sequence[int] = (0,)
) -> List[PeerHealth]:
    """Probe the ports of these tasks, all at the same time."""

    def probe(peer: Peer) -> PeerHealth:
        health = grpc_health.probe(peer.address, peer.port, peer.name, timeout_s, source_ports)
        return PeerHealth(task=peer.task, verdict=health.verdict, detail=health.detail)

    return parallel.each(probe, peers, MAX_THREADS)


def _source_ports(project: str, run: str) -> Sequence[int]:
    """Return the ports from which a task on this host connects to others."""
    for task in paths.tasks(project, run):
        ports = guard.read_ports(paths.task(project, run, task))
        if ports is not None:
            return guard.some_ports(ports)
    return (0,)


def unfinished_tasks(project: str, run: str, task: str, timeout_s: float) -> StillRunning:
    """Ask the supervisor of `task`, the chief, which tasks have not reported their end to it."""
    task_dir = paths.task(project, run, task)
    launch = records.load(Launch, paths.launch(task_dir))
    try:
        answer, _ = heartbeat.request(launch.heartbeat, {}, timeout_s)
        return StillRunning(list(answer["going"]))
    except (OSError, signing.Untrusted):  # it has ended, and has written its last state
        others = [other for other in launch.heartbeat.tasks if other != task]
        all_ended = records.load(TaskState, paths.state(task_dir)).others_ended
        return StillRunning([] if all_ended else others)


def chief_unreachable_reason(project: str, run: str, timeout_s: float) -> str:
    """Return why this host does not reach the chief's supervisor; "" if it does.

    The tasks of this host get the state of the run from that supervisor.
    """
    for task in paths.tasks(project, run):
        settings = records.load(Launch, paths.launch(paths.task(project, run, task))).heartbeat
        try:
            heartbeat.request(settings, heartbeat.WITHOUT_LISTS, timeout_s)
        except (OSError, signing.Untrusted) as error:
            return str(getattr(error, "strerror", None) or error)
        return ""
    return ""
