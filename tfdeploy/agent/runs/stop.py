"""The verb `stop`: stop tasks of a run on this host, and verify that their processes are gone."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import List, Optional

from ...shared import parallel, records, state_file
from ...shared.outcome import STOPPED_AFTER_LOSS
from ...shared.protocol.runs import SavedCheckpoint, Stopped, StoppedTask
from ...shared.records import ENDED, UNKNOWN, Launch, TaskState
from .. import paths
from ..machine import lock, process, stored
from ..refusal import Refusal
from ..reports import status
from . import change_lock, disk, start_lease

MARGIN_S = 10.0
GRACE_S = 60.0  # if its launch can't be read: its supervisor knows how long it may take


def stop(
    project: str,
    run: str,
    tasks: List[str],
    launched: str = "",
    informs: bool = False,
    silent: bool = False,
    linger_s: float = 0.0,
    others: bool = False,
) -> Stopped:
    """Stop `tasks` in parallel, and with `others` all others of the run that run here, after a
    start of this run that has not ended yet.

    `launched` names a launch of the run ("": any): tasks of a later launch are not stopped. If
    `informs` is true, the supervisor of the chief stays to inform the other tasks, until it is
    stopped once more or all of them have ended; if `silent` is true as well, it notifies nobody.
    The answer waits up to `linger_s` seconds for its exit.

    Raises Refusal while a controller resumes or scales the run: what it starts next would go on.
    Its own stop is `silent`.
    """
    if others and not silent:
        change_lock.refuse_if_held(project, run)
    number = (signal.SIGUSR2 if silent else signal.SIGUSR1) if informs else signal.SIGTERM

    start_lease.wait_until_free(run)

    def stop_one(task: str) -> StoppedTask:
        return _stop_launch(launched, project, run, task, number, linger_s)

    more = _running_tasks(project, run, tasks) if others else []
    return Stopped(parallel.each(stop_one, [*tasks, *more]))


def _running_tasks(project: str, run: str, named: List[str]) -> List[str]:
    """Return the tasks of a run that run here, without those that are `named`."""
    others = (task for task in sorted(paths.tasks(project, run)) if task not in named)
    return [task for task in others if is_running(project, run, task)]


def is_running(project: str, run: str, task: str) -> bool:
    """Return whether a task's supervisor lives, or a process of a task whose supervisor is gone."""
    task_dir = paths.task(project, run, task)
    return lock.is_live(task_dir) or disk.has_left_processes(project, run, task)


def _stop_launch(
    launch_name: str, project: str, run: str, task: str, number: int, linger_s: float
) -> StoppedTask:
    task_dir = paths.task(project, run, task)
    launch = _read_launch(task_dir)
    if launch_name and launch and launch.heartbeat.launch_name != launch_name:
        return StoppedTask(task, status.read_state(task_dir).state, [])
    return stop_task(project, run, task, number, linger_s)


def stop_task(
    project: str, run: str, task: str, number: int = signal.SIGTERM, linger_s: float = 0.0
) -> StoppedTask:
    """Stop the task through its supervisor, which gets the signal `number` (see
    supervision/watch.py); if it is gone, end all processes with the task's mark. Wait up to
    `linger_s` seconds for a supervisor that stays."""
    task_dir = paths.task(project, run, task)
    mark = process.mark(project, run, task)
    launch = _read_launch(task_dir)
    grace_s = launch.limits.stop_grace_s if launch else GRACE_S
    supervisor = lock.holder(task_dir)
    while supervisor == 0:  # it has not written its pid yet
        time.sleep(0.01)
        supervisor = lock.holder(task_dir)
    if supervisor is not None:
        stays = number != signal.SIGTERM and launch is not None and launch.is_chief
        _stop_supervisor(supervisor, task_dir, grace_s, number, stays)
    survivors = process.end_all(mark, None, grace_s)
    started = time.monotonic()
    while lock.holder(task_dir) is not None and time.monotonic() < started + linger_s:
        time.sleep(process.pause_s(time.monotonic() - started))
    return StoppedTask(
        task=task,
        state=_final_state(task_dir),
        survivors=survivors,
        saved=_newest_checkpoint(task_dir, launch),
        left=lock.holder(task_dir) is None,
    )


def _stop_supervisor(
    supervisor: int, task_dir: str, grace_s: float, number: int, stays: bool
) -> None:
    process.send_signal(supervisor, number)
    process.send_signal(supervisor, signal.SIGCONT)  # a stopped process receives no other signal
    started, limit_s = time.monotonic(), grace_s + process.KILL_WAIT_S + MARGIN_S
    while lock.holder(task_dir) == supervisor and not (stays and _has_ended(task_dir)):
        time.sleep(process.pause_s(time.monotonic() - started))
        if time.monotonic() > started + limit_s:
            # The kernel ends the task with its supervisor; `stop_task` ends its other processes.
            process.send_signal(supervisor, signal.SIGKILL)
            return


def _has_ended(task_dir: str) -> bool:
    try:
        return stored.state(task_dir).state in ENDED
    except (OSError, Refusal):
        return False


def _newest_checkpoint(task_dir: str, launch: Optional[Launch]) -> Optional[SavedCheckpoint]:
    if launch is None or not launch.is_chief:
        return None
    folder = paths.checkpoints(task_dir, launch.directory.checkpoint_dir)
    for name in state_file.read(folder)[:1]:
        written = os.stat(os.path.join(folder, state_file.STATE)).st_mtime
        return SavedCheckpoint(name, max(0.0, time.time() - written))
    return None


def _read_launch(task_dir: str) -> Optional[Launch]:
    try:
        return stored.launch(task_dir)
    except Refusal:
        return None


def _final_state(task_dir: str) -> str:
    """Return the state on disk, LOST if it can't be read. If a lost supervisor left it open, write
    that the task stopped."""
    if not os.path.isdir(task_dir):
        return UNKNOWN
    try:
        state = stored.state(task_dir)
    except OSError:
        return records.STOPPED
    except Refusal:
        return records.LOST
    if state.state in ENDED:
        return state.state
    stopped = TaskState(records.STOPPED, time.time(), reason=STOPPED_AFTER_LOSS)
    with suppress(OSError):  # a full or read-only disk: its processes are gone all the same
        records.write(paths.state(task_dir), records.to_json(stopped))
    return records.STOPPED
