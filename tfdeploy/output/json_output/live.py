"""The documents of `watch`: how a run trains, and what its tasks and hosts use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.output.json_output.shape import Shape
from tfdeploy.output.json_output.watching import TaskState, to_state

if TYPE_CHECKING:
    from tfdeploy.commands.watch import WatchedHost, WatchedRun, WatchedTask


@dataclass(frozen=True, kw_only=True)
class TrainingPosition(Shape):
    """How far the training is."""

    unit: Literal["step", "epoch"]
    """What is counted."""
    reached: float
    """The number that it has reached."""
    end: float | None
    """The number at which it ends; null if that is unknown."""


@dataclass(frozen=True, kw_only=True)
class WatchedTraining(Shape):
    """How the run trains, as the task says that is furthest."""

    task: str | None
    """The task that says it; null if none does."""
    step: int | None
    """The last training step in its event files."""
    position: TrainingPosition | None
    """How far the training is; null if no task says it."""
    per_s: float | None
    """Steps, or epochs, in a second."""
    left_s: float | None
    """The seconds that are left; null if the end is unknown."""
    loss: float | None
    """The last loss; null if the log has none, or one that is no number."""
    checkpoint: str | None
    """The newest checkpoint of the chief."""
    checkpoint_age_s: float | None
    """The seconds since it was saved."""


@dataclass(frozen=True, kw_only=True)
class GpuUse(Shape):
    """What one GPU does."""

    index: int
    """Its index on the host."""
    busy_percent: float | None
    """How busy it is; null if it does not report it."""
    used_bytes: int
    """Its memory that is in use."""
    total_bytes: int
    """Its memory."""


@dataclass(frozen=True, kw_only=True)
class HostUse(Shape):
    """What one host does. What it has not reported yet is null."""

    host: str
    """The host's name in hosts.toml."""
    away_s: float | None
    """The seconds since it gives no answer; null if it answers."""
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
    """The bytes that it receives in a second, on all interfaces."""
    sent_bytes_s: float | None
    """The bytes that it sends in a second."""
    gpus: list[GpuUse]
    """Its GPUs."""


@dataclass(frozen=True, kw_only=True)
class WatchedTaskState(TaskState):
    """A task, its state, and what its processes use."""

    cpu: float | None = None
    """The processors that they use: 1.5 is one and a half."""
    memory_bytes: int | None = None
    """Their memory."""


@dataclass(frozen=True, kw_only=True)
class WatchDocument(Shape):
    """A run at one moment: `watch` prints one such object in a line every five seconds."""

    run: str
    """The run's id."""
    ended: bool
    """Whether it has ended: then this is the last object."""
    training: WatchedTraining
    """How it trains."""
    hosts: list[HostUse]
    """All hosts."""
    tasks: list[WatchedTaskState]
    """All tasks."""


def watch_document(watched: WatchedRun, now: float) -> WatchDocument:
    """Return what is known of a run at the time `now` of time.monotonic."""
    return WatchDocument(
        run=watched.run.id,
        ended=watched.has_ended,
        training=_to_training(watched, now),
        hosts=[_to_host(host, now) for host in watched.hosts.values()],
        tasks=[_to_task(task) for task in watched.tasks.values()],
    )


def _to_training(watched: WatchedRun, now: float) -> WatchedTraining:
    history, report = watched.history, watched.training
    loss = history.losses[-1] if history.losses else math.nan
    return WatchedTraining(
        task=report.task if report else None,
        step=report.step if report else None,
        position=TrainingPosition.of(history.position) if history.position else None,
        per_s=history.rate(now),
        left_s=history.left_s(now),
        loss=loss if math.isfinite(loss) else None,
        checkpoint=watched.checkpoint or None,
        checkpoint_age_s=watched.checkpoint_age_s(now) if watched.checkpoint else None,
    )


def _to_host(host: WatchedHost, now: float) -> HostUse:
    use = host.use
    return HostUse(
        host=host.name,
        away_s=now - host.away_since if host.error else None,
        error=host.error.message if host.error else None,
        cpu=host.cpu,
        cpus=use.cpus if use else None,
        memory_bytes=use.used_bytes if use else None,
        memory_total_bytes=use.total_bytes if use else None,
        received_bytes_s=host.received,
        sent_bytes_s=host.sent,
        gpus=[GpuUse.of(gpu) for gpu in use.gpus] if use else [],
    )


def _to_task(task: WatchedTask) -> WatchedTaskState:
    state = vars(to_state(task.placement, task.report))
    return WatchedTaskState(**state, cpu=task.cpu, memory_bytes=task.used_bytes)
