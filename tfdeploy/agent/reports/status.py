"""The verb `status`: report a run's tasks on this host, from their state files and ports."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional

from ...shared import filesystem, parallel, records
from ...shared.protocol.message import Message, parse_lines
from ...shared.protocol.record import replace
from ...shared.protocol.reports import TaskReports
from ...shared.records import (
    ENDED,
    FROZEN,
    LOST,
    PAUSED,
    QUEUED,
    STOPPED,
    Launch,
    TaskReport,
    TaskState,
)
from .. import paths
from ..machine import lock, stored
from ..refusal import Refusal

MAX_VERSIONS_BYTES = 1 << 14
STOPPED_BY_SIGNAL = "a signal has stopped {}; kill -CONT {} continues it"
NOT_STORED = "its host's file system is read-only, so how it ended could not be stored"
LEFT_QUEUE = "{}, so the run has left the queue; tfdeploy resume {} --queue submits it again"


class Imported(Message):
    """A line of inside/tfdeploy_versions.py: versions by name."""

    versions: Dict[str, str]


def status(project: str, run: str, tail: int) -> TaskReports:
    """Report every task of the run on this host, with the last `tail` lines of its log."""
    tasks = paths.tasks(project, run)
    return TaskReports(parallel.each(lambda task: report(project, run, task, tail, True), tasks))


def report(project: str, run: str, task: str, tail: int = 0, probe: bool = False) -> TaskReport:
    """Report one task, with the last `tail` lines of its log.

    If `probe` is true and the task has not ended, the report includes what its port answers and
    its training progress.
    """
    task_dir = paths.task(project, run, task)
    state = read_state(task_dir)
    log = paths.log(project, run, task)
    result = TaskReport(
        task=task,
        state=state.state,
        age_s=max(0.0, time.time() - state.since),
        pid=state.pid,
        exit=state.exit,
        restarts=state.restarts,
        reason=state.reason,
        cause=state.cause,
        planned=state.planned,
        log=last_lines(log, tail) if tail else [],
        log_problem=log_problem(log, state.state in ENDED),
        notice=_notice(task_dir),
        exposed="" if state.state in ENDED else state.exposed,
        gpus=_gpus(task_dir),
        versions=_versions(task_dir),
    )
    return _probe(result, task_dir, log) if probe and state.state not in ENDED else result


def _probe(report: TaskReport, task_dir: str, log: str) -> TaskReport:
    """Add what the supervisor's state file does not have: health and training progress."""
    # `follow` needs none of them: their patterns alone take 5 ms to compile.
    from ..machine import grpc_health, process
    from ..outputs import event_files
    from . import pace, progress

    try:
        launch = stored.launch(task_dir)
    except Refusal as unreadable:
        why = "{}; {}".format(unreadable.message, unreadable.hint)
        return replace(report, reason="; ".join(filter(None, [report.reason, why])))
    if report.state == QUEUED:
        from ..queue import report as queue  # rarely needed

        return replace(report, reason=queue.explain(launch))
    files = event_files.of_task(task_dir, launch.directory.checkpoint_dir)
    last = progress.last_step(files)
    health, reason = grpc_health.task_health(launch), report.reason
    stopped = process.find_stopped(report.pid) if report.pid else None
    if stopped:
        health = FROZEN if health == FROZEN else PAUSED
        reason = STOPPED_BY_SIGNAL.format(process.name(stopped), stopped)
    return replace(
        report,
        health=health,
        reason=reason,
        step=last.step if last else None,
        step_age_s=last.age_s if last else None,
        quiet_s=progress.quiet_s(log, files),
        log_progress=progress.read_log(log),
        pace=pace.read(launch.project, launch.run, launch.task),
        ends_s=_ends_s(task_dir, launch),
    )


def _ends_s(task_dir: str, launch: Launch) -> Optional[float]:
    if launch.limits.max_duration_s is None:
        return None
    from ..machine.leases import Holder
    from ..queue import places  # as above

    return places.seconds_left(Holder(lock.holder(task_dir) or 0))


def _gpus(task_dir: str) -> Optional[List[int]]:
    """Return the task's GPUs; None before they are chosen."""
    launch = stored.launch_if_readable(task_dir)
    return None if launch is None or launch.gpus.choice else launch.gpus.indexes


def _versions(task_dir: str) -> Dict[str, str]:
    """Return what the task's process has reported of the framework that it has imported."""
    try:
        with os.fdopen(filesystem.open_regular(paths.versions(task_dir)), "rb") as file:
            lines = file.read(MAX_VERSIONS_BYTES)
    except OSError:
        return {}
    return {k: v for each in parse_lines(Imported, lines) for k, v in each.versions.items()}


def _notice(task_dir: str) -> str:
    """Return which notification of the run's end has failed; "" if none has."""
    return "; ".join(records.read_or_empty(dict, paths.notice(task_dir)).get("failed", []))


def read_state(task_dir: str) -> TaskState:
    """Return what the supervisor wrote. If it is gone and the task had not ended: LOST, but STOPPED
    if the disk is read-only and no process is left: how it ended could not be stored."""
    supervisor = lock.holder(task_dir)
    try:
        state = stored.state(task_dir)
    except OSError:
        state = TaskState(records.STARTING, os.stat(task_dir).st_mtime)
    except Refusal as unreadable:
        return _unknown(task_dir, unreadable.message, is_live=supervisor is not None)
    if state.state in ENDED or supervisor is not None:
        return state
    rebooted = bool(state.boot) and state.boot != paths.boot_id()
    could_write = rebooted or not os.statvfs(task_dir).f_flag & os.ST_RDONLY
    if not could_write and state.state != QUEUED and not _has_processes(task_dir):
        return replace(state, state=STOPPED, reason=NOT_STORED)
    reason = "the host restarted" if rebooted else "its supervisor was killed"
    if state.state == QUEUED:
        reason = LEFT_QUEUE.format(reason, paths.parts_of_task(task_dir)[1])
    return replace(state, state=LOST, reason=reason)


def _unknown(task_dir: str, why: str, is_live: bool) -> TaskState:
    since = os.stat(task_dir).st_mtime
    if is_live:
        return TaskState(records.RUNNING, since, reason=why)
    return TaskState(LOST, since, reason="{}; how it ended is not known".format(why))


def _has_processes(task_dir: str) -> bool:
    from ..machine import process  # rarely needed

    return bool(process.task_processes(process.mark(*paths.parts_of_task(task_dir))))


def log_problem(path: str, has_ended: bool) -> str:
    """Return why a log can't be read, "" if it can. One that is gone is made again, by the
    supervisor of a task that has not ended."""
    problem = filesystem.file_problem(path)
    if not problem or (problem == filesystem.GONE and not has_ended):
        return ""
    return "its log {} {}".format(path, problem)


def new_problem(report: TaskReport, shown: Dict[str, str]) -> List[str]:
    """Return the line that shows why a task's log can't be read, unless it was `shown`, by task."""
    before, shown[report.task] = shown.get(report.task, ""), report.log_problem
    is_new = report.log_problem not in ("", before)
    return ["… {}".format(report.log_problem)] if is_new else []


def last_lines(path: str, count: int) -> List[str]:
    """Return the last lines of a log, including those from before its rotation."""
    from .tail import Tail  # most calls report no log

    return [line for lines in Tail("", path, count).read(True) for line in lines]
