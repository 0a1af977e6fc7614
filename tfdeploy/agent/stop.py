"""The verb `stop`: ends a run's tasks on this host, whole, and verifies that they are gone."""

from __future__ import annotations

import os
import signal
import time

from . import TYPE_CHECKING, at_once, lock, paths, process, records, state_file
from .records import ENDED, Launch, TaskState

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

MARGIN_S = 10.0
UNKNOWN = "UNKNOWN"  # this host never had the task


def stop(project: str, run: str, tasks: List[str], launched: str = "") -> List[Dict[str, Any]]:
    """Stop `tasks` at once, but for those of another launch than `launched`, if that is said: they
    were begun again since by somebody else.

    For each `{task, state, survivors, saved}`: the pids that could not end, and for the chief its
    newest checkpoint `{name, age_s}`, if it has one.
    """
    return at_once.each(lambda task: _stop_if_of(launched, project, run, task), tasks)


def _stop_if_of(launched: str, project: str, run: str, task: str) -> Dict[str, Any]:
    task_dir = paths.task(project, run, task)
    launch = _launch(task_dir)
    if launched and launch and launch.circle.name != launched:
        from . import status  # seldom: who stops a run mostly means the one that lives

        return {"task": task, "state": status.read_state(task_dir).state, "survivors": []}
    return stop_task(project, run, task)


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
    return {
        "task": task,
        "state": _settled(task_dir),
        "survivors": survivors,
        "saved": _saved(task_dir),
    }


def _ask(supervisor: int, task_dir: str, grace_s: float) -> None:
    process.send(supervisor, signal.SIGTERM)
    process.send(supervisor, signal.SIGCONT)  # one that was stopped would never hear the first
    deadline = time.monotonic() + grace_s + process.KILL_WAIT_S + MARGIN_S
    while lock.holder(task_dir) == supervisor:
        time.sleep(0.05)
        if time.monotonic() > deadline:
            process.send(supervisor, signal.SIGKILL)  # its task dies with it, the rest is swept
            return


def _grace(task_dir: str) -> float:
    launch = _launch(task_dir)
    return launch.stop_grace_s if launch else 0.0


def _saved(task_dir: str) -> Optional[Dict[str, Any]]:
    launch = _launch(task_dir)
    if launch is None or not launch.is_chief:
        return None
    folder = paths.checkpoints(task_dir, launch.checkpoint_dir)
    for name in state_file.read(folder)[:1]:
        written = os.stat(os.path.join(folder, state_file.STATE)).st_mtime
        return {"name": name, "age_s": max(0.0, time.time() - written)}
    return None


def _launch(task_dir: str) -> Optional[Launch]:
    try:
        return records.load(Launch, paths.launch(task_dir))
    except (OSError, ValueError, TypeError):
        return None


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
