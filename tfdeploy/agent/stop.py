"""The verb `stop`: ends a run's tasks on this host, whole, and verifies that they are gone."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

from . import lock, paths, process, records
from .records import ENDED, Launch, TaskState

MARGIN_S = 10.0
UNKNOWN = "UNKNOWN"  # this host never had the task


def stop(project: str, run: str, tasks: List[str]) -> List[Dict[str, Any]]:
    """Stop `tasks` at once; for each `{task, state, survivors}`, the pids that could not end."""
    if not tasks:
        return []
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        return list(pool.map(lambda task: stop_task(project, run, task), tasks))


def stop_task(project: str, run: str, task: str) -> Dict[str, Any]:
    """Ask the task's supervisor to end it; where that one is gone, end what carries the mark."""
    task_dir = paths.task(project, run, task)
    mark = process.mark(project, run, task)
    grace_s = _grace(task_dir)
    supervisor = lock.holder(task_dir)
    while supervisor == 0:
        time.sleep(0.01)
        supervisor = lock.holder(task_dir)
    if supervisor is not None:
        _ask(supervisor, task_dir, grace_s)
    survivors = process.end(mark, None, grace_s)
    return {"task": task, "state": _settled(task_dir), "survivors": survivors}


def _ask(supervisor: int, task_dir: str, grace_s: float) -> None:
    try:
        os.kill(supervisor, signal.SIGTERM)
    except OSError:
        return
    deadline = time.monotonic() + grace_s + process.KILL_WAIT_S + MARGIN_S
    while lock.holder(task_dir) == supervisor and time.monotonic() < deadline:
        time.sleep(0.05)


def _grace(task_dir: str) -> float:
    try:
        return records.load(Launch, paths.launch(task_dir)).stop_grace_s
    except (OSError, ValueError):
        return 0.0


def _settled(task_dir: str) -> str:
    """The state on disk; one that a lost supervisor left open is closed here, after the sweep."""
    if not os.path.isdir(task_dir):
        return UNKNOWN
    try:
        state = records.load(TaskState, paths.state(task_dir))
    except (OSError, ValueError):
        return records.STOPPED
    if state.state in ENDED:
        return state.state
    closed = TaskState(records.STOPPED, time.time(), reason="stopped after its supervisor was lost")
    records.write(paths.state(task_dir), records.to_json(closed))
    return records.STOPPED
