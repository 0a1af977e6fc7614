"""The verb `status`: a run's tasks on this host, as supervisors wrote and ports say."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import List, Tuple

from . import health, lock, paths, records
from .records import ENDED, LOST, Launch, TaskReport, TaskState

TAIL_BYTES = 64 * 1024


def status(project: str, run: str, tail: int) -> List[TaskReport]:
    """Every task that this host holds of the run, with the last `tail` lines of its log."""
    tasks = paths.tasks(project, run)
    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        return list(pool.map(lambda task: report(project, run, task, tail, True), tasks))


def report(project: str, run: str, task: str, tail: int = 0, probe: bool = False) -> TaskReport:
    task_dir = paths.task(project, run, task)
    state = read_state(task_dir)
    log = last_lines(paths.log(project, run, task), tail) if tail else []
    return TaskReport(
        task=task,
        state=state.state,
        age_s=max(0.0, time.time() - state.since),
        pid=state.pid,
        exit=state.exit,
        restarts=state.restarts,
        reason=state.reason,
        health=_health(task_dir, task) if probe and state.state not in ENDED else "-",
        log=log,
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
    reason = "its supervisor is gone: it was killed, or the host restarted"
    return TaskState(LOST, state.since, state.pid, state.exit, state.restarts, reason)


def last_lines(path: str, count: int) -> List[str]:
    return tail_of(path)[1].decode(errors="replace").splitlines()[-count:]


def tail_of(path: str) -> Tuple[int, bytes]:
    """A file's size and its last bytes, at most TAIL_BYTES; nothing where it can't be read."""
    try:
        with open(path, "rb") as file:
            size = os.path.getsize(path)
            start = max(0, size - TAIL_BYTES)
            file.seek(start)
            return size, file.read(size - start)
    except OSError:
        return 0, b""


def _health(task_dir: str, task: str) -> str:
    launch = records.load(Launch, paths.launch(task_dir))
    if launch.port is None:
        return "-"
    return health.ask("localhost", launch.port, task).verdict
