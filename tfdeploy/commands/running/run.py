"""`tfdeploy run`, after the start: follow the run to its end, stop what is left, collect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy import run as runs
from tfdeploy.commands.collect import CollectResult, collect_reachable
from tfdeploy.commands.intent import Queue
from tfdeploy.commands.resume import Changes, ResumeResult, resume
from tfdeploy.commands.running.follow import RunEnd, Watcher, follow
from tfdeploy.commands.stop import stop_reachable
from tfdeploy.errors import (
    LeaseConflict,
    RunError,
    TaskError,
    TfdeployError,
    Unreachable,
    individual_errors,
    raise_all,
)
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.results.outputs import Outputs

if TYPE_CHECKING:
    from pathlib import Path

    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.results.checkpoints import Checkpoint
    from tfdeploy.run import Run

# `run --resilient` resumes without a host that has been silent for this time.
HOST_PATIENCE_S = 60.0
MAX_RESUMES = 10


@dataclass(frozen=True)
class FinishedRun(RunEnd):
    """How a run ended, and what was fetched."""

    __repr__ = short_repr
    KEYS = (
        *("run", "result", "reason", "exit", "failure", "errors", "states", "folder"),
        *("checkpoints", "outputs"),
    )
    NAMES: ClassVar = {"failure": "error", "states": "tasks", "folder": "collected"}
    MERGED: ClassVar = {"outputs": Outputs}

    collected: CollectResult
    states: dict[str, str]
    """The state in which each task was left."""
    errors: tuple[TfdeployError, ...] = ()
    """The errors of hosts."""
    run: str = ""
    """The run's id."""

    @property
    def folder(self) -> Path:
        """The run's folder on the controller."""
        return self.collected.folder

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The fetched checkpoints, newest first."""
        return self.collected.checkpoints

    @property
    def outputs(self) -> Outputs:
        return self.collected.outputs


def follow_to_end(
    fleet: Fleet, run: Run, watcher: Watcher, lines: int | None = None
) -> tuple[Run, RunEnd]:
    """Follow as `follow` does; a lost task ends the run. `lines` limits the old lines of each log.

    Raises HostError if a host that the run depends on is silent for as long as the run itself would
    wait for it. The run then goes on.
    """
    outcome = follow(fleet, run, watcher, run.inventory.training.orphan_timeout_s, lines)
    if isinstance(outcome, RunEnd):
        return run, outcome
    if outcome.hosts:
        raise outcome.error
    return run, RunEnd(1, outcome.error, "lost")


def follow_resiliently(
    fleet: Fleet, run: Run, watcher: Watcher, lines: int | None = None
) -> tuple[Run, RunEnd]:
    """Follow as `follow` does; after an interruption, resume without the lost hosts, up to
    MAX_RESUMES times. `lines` limits the old lines of each log.

    Return the run as it was at its end, on some of the fleet's hosts, and how it ended. Raises what
    `resume` raises.
    """
    resumes = 0
    while True:
        outcome = follow(fleet, run, watcher, HOST_PATIENCE_S, lines)
        if isinstance(outcome, RunEnd):
            return run, outcome
        watcher.on_interruption(outcome.error)
        if resumes == MAX_RESUMES:
            return run, RunEnd(1, outcome.error, "lost")
        resumed = _resume_without(fleet, run, outcome.hosts, watcher)
        watcher.on_resumed(resumed)
        run, resumes, lines = resumed.run, resumes + 1, None


def _resume_without(
    fleet: Fleet, run: Run, lost: tuple[str, ...], watcher: Watcher
) -> ResumeResult:
    """Resume without the lost hosts, and without others that turn out to be unreachable: these are
    left out of what the first attempt has planned, of which some hosts may have the record. If
    others use or wait for its GPUs or ports, the run waits in the queue."""
    without, queue = lost, None
    while True:
        try:
            return resume(
                run, Changes(without), watcher.on_report, fleet.transfers,
                queue=queue, waiting=watcher.waiting,
            )  # fmt: skip
        except TfdeployError as error:
            errors = _of_other_hosts(error, without)
            more = {e.host for e in errors if isinstance(e, Unreachable)}
            if not queue and all(isinstance(each, LeaseConflict) for each in errors):
                queue = Queue(math.inf)
            elif more <= {*without} or more >= {*run.plan.hosts} - {*without}:
                raise
            else:
                watcher.on_interruption(error)
            run = runs.load(run.inventory.file, run.id)
            present = {host.name for host in run.inventory.hosts}
            without = tuple(h for h in (*without, *sorted(more - {*without})) if h in present)


def _of_other_hosts(error: TfdeployError, without: tuple[str, ...]) -> list[TfdeployError]:
    """Return the single errors, without those that `resume` adds: which tasks may still run on the
    hosts that it leaves out."""
    errors = individual_errors(error)
    return [e for e in errors if not (isinstance(e, TaskError) and e.host in without)]


def finish(fleet: Fleet, run: Run, ended: RunEnd, *, every: bool = False) -> FinishedRun:
    """Stop what is left of a run, and collect from all hosts as `collect_reachable` does.

    Raises RunError, after the failure of the run, if its folder can't be locked.
    """
    stopped = stop_reachable(fleet, run, launched=run.launched)
    try:
        collected = collect_reachable(fleet, run, every=every)
    except RunError as error:
        raise_all([*([ended.failure] if ended.failure else []), *stopped.errors, error])
        raise
    errors = {str(error): error for error in (*stopped.errors, *collected.errors)}
    code = ended.exit or int(bool(errors))
    return FinishedRun(
        code,
        ended.failure,
        ended.result,
        collected,
        stopped.states,
        tuple(errors.values()),
        run.id,
        reason=ended.reason,
        cut_off=ended.cut_off,
    )
