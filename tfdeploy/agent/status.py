"""The verb `status`: a run's tasks on this host, as supervisors wrote and ports say."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from . import TYPE_CHECKING, at_once, event_files, health, lock, paths, progress, records
from .records import ENDED, LOST, Launch, TaskReport, TaskState
from .tail import Tail

if TYPE_CHECKING:
    from typing import List


def status(project: str, run: str, tail: int) -> List[TaskReport]:
    """Every task that this host holds of the run, with the last `tail` lines of its log."""
    tasks = paths.tasks(project, run)
    return at_once.each(lambda task: report(project, run, task, tail, True), tasks)


def report(project: str, run: str, task: str, tail: int = 0, probe: bool = False) -> TaskReport:
    task_dir = paths.task(project, run, task)
    state = read_state(task_dir)
    lives = state.state not in ENDED
    log = paths.log(project, run, task)
    told = TaskReport(
        task=task,
        state=state.state,
        age_s=max(0.0, time.time() - state.since),
        pid=state.pid,
        exit=state.exit,
        restarts=state.restarts,
        reason=state.reason,
        cause=state.cause,
        log=last_lines(log, tail) if tail else [],
    )
    return _probed(told, task_dir, log) if probe and lives else told


def _probed(told: TaskReport, task_dir: str, log: str) -> TaskReport:
    """Besides what its supervisor wrote: what its port says, and whether training moves."""
    launch = records.load(Launch, paths.launch(task_dir))
    files = event_files.of(task_dir, launch.checkpoint_dir)
    newest = progress.newest(files)
    return replace(
        told,
        health=health.of(launch),
        step=newest.step if newest else None,
        step_age_s=newest.age_s if newest else None,
        quiet_s=progress.quiet_s(log, files),
    )


def read_state(task_dir: str) -> TaskState:
    """What the supervisor wrote, or LOST where it is gone and had not finished writing."""
    alive = lock.holder(task_dir)
    try:
        state = records.load(TaskState, paths.state(task_dir))
    except (OSError, ValueError):
        state = TaskState(records.STARTING, os.stat(task_dir).st_mtime)
    if state.state in ENDED or alive is not None:
        return state
    again = bool(state.boot) and state.boot != paths.boot()
    reason = "the host restarted" if again else "its supervisor was killed"
    return replace(state, state=LOST, reason=reason)


def last_lines(path: str, count: int) -> List[str]:
    """Of a log and of what it held before its rotation."""
    return [line for lines in Tail("", path, count).read(True) for line in lines]
