"""The document of `watch`: how a run trains, and what its tasks and hosts use, at one moment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.planning.plan import Placement
from tfdeploy.shared.records import TaskReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.branches.live.watched_run import WatchedHost, WatchedRun
    from tfdeploy.commands.watching.history import Position
    from tfdeploy.errors import HostError
    from tfdeploy.shared.protocol.reports import GpuUse


@dataclass(frozen=True, kw_only=True)
class WatchedTraining:
    """How the run trains, as the task says that is furthest."""

    task: str | None
    """The task that says it; null if none does."""
    step: int | None
    """The last training step in its event files."""
    position: Position | None
    """How far the training is; null if no task says it."""
    per_s: float | None
    """Steps, or epochs, in a second."""
    left_s: float | None
    """The seconds that are left."""
    loss: float | None
    """The last loss."""
    checkpoint: str | None
    """The newest checkpoint of the chief."""
    checkpoint_age_s: float | None
    """The seconds since it was saved."""


@dataclass(frozen=True, kw_only=True)
class HostNow:
    """What one host does."""

    host: str
    """The host's name in hosts.toml."""
    away_s: float | None
    """The seconds since it gives no answer."""
    error: str | None
    """Why it gives no answer."""
    cpu: float | None
    """How busy its processors are, from 0 to 1."""
    cpus: int | None
    """The number of its processors."""
    memory_bytes: int | None
    """Its memory that is in use."""
    memory_total_bytes: int | None
    """Its memory."""
    received_bytes_s: float | None
    """The bytes that it receives in a second."""
    sent_bytes_s: float | None
    """The bytes that it sends in a second."""
    gpus: Sequence[GpuUse]
    """Its GPUs."""


@dataclass(frozen=True)
class TaskNow:
    """A task, its state, and what its processes use."""

    MERGED: ClassVar = {"placement": Placement, "report": TaskReport}

    placement: Placement
    report: TaskReport | None
    cpu: float | None
    """The processors that they use."""
    memory_bytes: int | None
    """Their memory."""


@dataclass(frozen=True)
class WatchDocument:
    """A run at one moment: one line every five seconds."""

    run: str
    """The run's id."""
    ended: bool
    """Whether it has ended."""
    training: WatchedTraining
    """How it trains."""
    hosts: Sequence[HostNow]
    """All hosts."""
    tasks: Sequence[TaskNow]
    """All tasks."""
    slow: Sequence[HostError]
    """What is slower than the rest of the run."""


def watch_document(watched: WatchedRun, now: float) -> WatchDocument:
    """Return what is known of a run at the time `now` of time.monotonic."""
    hosts, tasks = watched.hosts.values(), watched.tasks.values()
    return WatchDocument(
        watched.run.id,
        watched.has_ended,
        _training(watched, now),
        [_host(host, now) for host in hosts],
        [TaskNow(task.placement, task.report, task.cpu, task.used_bytes) for task in tasks],
        watched.slow,
    )


def _training(watched: WatchedRun, now: float) -> WatchedTraining:
    history, report = watched.history, watched.training
    return WatchedTraining(
        task=report.task if report else None,
        step=report.step if report else None,
        position=history.position,
        per_s=history.rate(now),
        left_s=history.left_s(now),
        loss=history.losses[-1] if history.losses else math.nan,
        checkpoint=watched.checkpoint or None,
        checkpoint_age_s=watched.checkpoint_age_s(now) if watched.checkpoint else None,
    )


def _host(host: WatchedHost, now: float) -> HostNow:
    use = host.use
    return HostNow(
        host=host.name,
        away_s=now - host.away_since if host.error else None,
        error=host.error.message if host.error else None,
        cpu=host.cpu,
        cpus=use.cpus if use else None,
        memory_bytes=use.used_bytes if use else None,
        memory_total_bytes=use.total_bytes if use else None,
        received_bytes_s=host.received,
        sent_bytes_s=host.sent,
        gpus=use.gpus if use else (),
    )
