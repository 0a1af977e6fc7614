"""The documents of commands that look at a run: status, logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.terminal_text import plain_text
from tfdeploy.output.json_output.planning import Place, to_place
from tfdeploy.output.json_output.problems import Problem, to_problems
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfdeploy.commands.status import RunStatus
    from tfdeploy.formatting.fold_lines import Block
    from tfdeploy.planning.plan import Placement
    from tfdeploy.shared.records import TaskReport


@dataclass(frozen=True, kw_only=True)
class LogProgress(Shape):
    """What the end of a log says about the training; null if it does not."""

    epoch: int | None
    """The epoch of Keras."""
    epochs: int | None
    """The number of epochs."""
    batch: int | None
    """The batch of this epoch."""
    batches: int | None
    """The number of batches of an epoch."""
    step: int | None
    """The global step."""
    loss: str
    """The loss, as it was printed; "" if none was."""
    waits_for: list[str]
    """The tasks that TensorFlow waits for, by their names in scripts."""


@dataclass(frozen=True, kw_only=True)
class TaskState(Place):
    """A task and its state; if its host gave no report, everything but its place is null."""

    state: str | None
    """STARTING, RUNNING, READY, BACKOFF, SUCCEEDED, FAILED, STOPPED or LOST."""
    age_s: float | None = None
    """The seconds since it entered this state."""
    pid: int | None = None
    """The id of its process."""
    exit: int | None = None
    """The last exit code of its process; negative for a signal."""
    restarts: int | None = None
    """How often it was restarted."""
    reason: str | None = None
    """Why it is in this state."""
    cause: str | None = None
    """The task whose end made it end; "" if there is none."""
    health: str | None = None
    """What its port answers; `-` if it has none."""
    step: int | None = None
    """The last training step in its event files."""
    step_age_s: float | None = None
    """The seconds since that step."""
    quiet_s: float | None = None
    """The seconds since its log or event files changed."""
    planned: bool | None = None
    """Whether max_duration_s ended it."""
    log_progress: LogProgress | None = None
    """What its log says about the training."""
    notice: str | None = None
    """Which notification of the run's end has failed; "" if none has."""
    exposed: str | None = None
    """The ports that the guard does not cover, and their processes; "" if there are none."""
    log: list[str] | None = None
    """Always empty."""


@dataclass(frozen=True, kw_only=True)
class StatusDocument(Shape):
    """The state of each task."""

    run: str
    """The run's id."""
    release: str
    """The id of its release."""
    network: str
    """`guarded`, `strict` or `open`: who may connect to the tasks."""
    tasks: list[TaskState]
    """All tasks."""
    errors: list[Problem]
    """The errors of hosts that gave no report."""


@dataclass(frozen=True, kw_only=True)
class LogLine(Shape):
    """One line of a log: `logs` prints one such object in each line of its output."""

    task: str
    """The task that wrote it; with --fold, the first of them."""
    host: str
    """The task's host."""
    line: str
    """The line without colors. A progress bar is its last state."""
    tasks: list[str] | None = None
    """With --fold all tasks that wrote the line, otherwise null."""


def status_document(status: RunStatus) -> StatusDocument:
    return StatusDocument(
        run=status.run.id,
        release=status.run.release,
        network=status.run.inventory.network,
        tasks=[to_state(task.placement, task.report) for task in status.tasks],
        errors=to_problems(status.errors),
    )


def log_lines(task: str, host: str, lines: Iterable[str]) -> Iterator[LogLine]:
    for line in lines:
        yield LogLine(task=task, host=host, line=plain_text(line))


def folded_lines(blocks: Iterable[Block], hosts: Mapping[str, str]) -> Iterator[LogLine]:
    """Yield the lines of blocks; `hosts` are those of the tasks."""
    for block in blocks:
        first, tasks = block.tasks[0], list(block.tasks)
        for line in block.lines:
            yield LogLine(task=first, host=hosts[first], line=line, tasks=tasks)


def to_state(placement: Placement, report: TaskReport | None) -> TaskState:
    place = vars(to_place(placement))
    if report is None:
        return TaskState(**place, state=None)
    of_log = LogProgress.of(report.log_progress) if report.log_progress else None
    return TaskState.of(report, **place, log_progress=of_log)
