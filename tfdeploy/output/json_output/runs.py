"""The documents of commands that change a run: start, run, attach, resume, scale, stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfdeploy.output.json_output.planning import Place, to_place
from tfdeploy.output.json_output.problems import Problem, to_problem, to_problems
from tfdeploy.output.json_output.results import (
    Checkpoint,
    Output,
    SavedElsewhere,
    SkippedOutput,
    UnlistedFiles,
    written_files,
)
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.run import FinishedRun
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.errors import TfdeployError
    from tfdeploy.run import Run


@dataclass(frozen=True, kw_only=True)
class StartDocument(Shape):
    """The run that has started: every task is READY, or has succeeded already."""

    run: str
    """The run's id."""
    name: str
    """The name of --name; "" if it has none."""
    words: list[str]
    """The words that the command line added to the command."""
    release: str
    """The id of its release."""
    data: dict[str, str]
    """The release of each data set, by its place."""
    network: str
    """`guarded`, `strict` or `open`: who may connect to the tasks."""
    folder: str
    """The folder of the run's record and results on the controller."""
    tasks: list[Place]
    """All tasks."""
    notes: list[Problem]
    """What may matter and prevents nothing."""


@dataclass(frozen=True, kw_only=True)
class Source(Shape):
    """The checkpoint from which a run continues."""

    host: str
    """The host that had it."""
    folder: str
    """Its folder on that host."""
    name: str
    """Its name."""
    step: int | None
    """Its step, if its name has one."""


@dataclass(frozen=True, kw_only=True)
class ResumeDocument(StartDocument):
    """The run that has started again."""

    checkpoint: Source | None
    """The checkpoint from which the run continues; null if there is none."""
    files: list[str]
    """The paths of the other files that the chief's script finds."""
    stop_s: float
    """The seconds until everything had stopped."""
    start_s: float
    """The seconds from then until every task was READY."""


@dataclass(frozen=True, kw_only=True)
class ScaleDocument(ResumeDocument):
    """The run that continues with other numbers of tasks."""

    before: str
    """The numbers of tasks before, in words."""
    after: str
    """The numbers of tasks now, in words."""


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint(Shape):
    """The newest checkpoint of a chief that was still training."""

    name: str
    """Its name."""
    age_s: float
    """The seconds since it was saved: what was trained after it is lost."""


@dataclass(frozen=True, kw_only=True)
class OtherTask(Shape):
    """A task that ran on a host where the run's plan does not have it."""

    task: str
    """The task's name."""
    host: str
    """The host's name."""
    state: str
    """The state in which it was left."""


@dataclass(frozen=True, kw_only=True)
class StopDocument(Shape):
    """What was stopped."""

    run: str
    """The run's id."""
    tasks: dict[str, str]
    """The state in which each task was left."""
    saved: SavedCheckpoint | None
    """The newest checkpoint, if the chief was still training and has one."""
    ended_unasked: list[str]
    """Tasks on hosts that did not answer, which ended by the run's own network."""
    unconfirmed: list[str]
    """Tasks on hosts that did not answer, which may still run."""
    others: list[OtherTask]
    """Tasks that ran although the run's plan does not have them on these hosts."""
    silent_hosts: list[str]
    """Hosts without a task of the plan that did not answer."""
    errors: list[Problem]
    """The errors of hosts and tasks."""


@dataclass(frozen=True, kw_only=True)
class RunDocument(Shape):
    """How a run ended, and what was fetched."""

    run: str
    """The run's id."""
    result: Literal["succeeded", "failed", "stopped", "ended"]
    """How it ended; `ended`: after max_duration_s."""
    exit: int
    """The exit code of the command."""
    error: Problem | None
    """The root cause, if it failed."""
    errors: list[Problem]
    """The errors of hosts that could not be stopped or collected."""
    tasks: dict[str, str]
    """The state in which each task was left."""
    collected: str
    """The folder of the run's results on the controller."""
    checkpoints: list[Checkpoint]
    """The checkpoints that were fetched at the end, newest first."""
    outputs: list[Output]
    """Files and folders that tasks wrote and that are on the controller now."""
    left: list[SkippedOutput]
    """Files and folders that were not fetched."""
    others: list[UnlistedFiles]
    """Files that no key of hosts.toml selects."""
    elsewhere: list[SavedElsewhere]
    """What tasks wrote outside of every folder that is fetched, the newest 64 of each task."""
    elsewhere_more: int
    """How many further files and folders they wrote there."""


def start_document(run: Run, notes: Iterable[TfdeployError]) -> StartDocument:
    return StartDocument(
        run=run.id,
        name=run.name,
        words=list(run.words),
        release=run.release,
        data=dict(run.data),
        network=run.inventory.network,
        folder=str(run.folder),
        tasks=[to_place(placement) for placement in run.plan.placements],
        notes=to_problems(notes),
    )


def resume_document(resumed: ResumeResult) -> ResumeDocument:
    return ResumeDocument(
        **vars(start_document(resumed.run, ())),
        checkpoint=Source.of(resumed.source) if resumed.source else None,
        files=list(resumed.files),
        stop_s=round(resumed.stop_s, 3),
        start_s=round(resumed.start_s, 3),
    )


def scale_document(scaled: ScaleResult) -> ScaleDocument:
    resumed = vars(resume_document(scaled.resumed))
    return ScaleDocument(**resumed, before=scaled.before, after=scaled.after)


def stop_document(run: Run, stopped: StopResult) -> StopDocument:
    name, age_s = stopped.saved or ("", 0.0)
    return StopDocument(
        run=run.id,
        tasks=dict(stopped.states),
        saved=SavedCheckpoint(name=name, age_s=age_s) if stopped.saved else None,
        ended_unasked=[str(placement.task) for placement in stopped.ended_unasked],
        unconfirmed=[str(placement.task) for placement in stopped.unconfirmed],
        others=[OtherTask(**vars(other)) for other in stopped.others],
        silent_hosts=list(stopped.silent_hosts),
        errors=to_problems(stopped.errors),
    )


def run_document(run: Run, finished: FinishedRun) -> RunDocument:
    collected = finished.collected
    return RunDocument(
        run=run.id,
        result=finished.result,
        exit=finished.exit,
        error=to_problem(finished.failure) if finished.failure else None,
        errors=to_problems(finished.errors),
        tasks=dict(finished.states),
        collected=str(collected.folder),
        checkpoints=[Checkpoint.of(checkpoint) for checkpoint in collected.checkpoints],
        **written_files(collected),
    )
