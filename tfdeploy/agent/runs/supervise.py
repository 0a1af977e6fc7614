"""Supervise a task: the main function of the process that each task has."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import Union

from ...shared import filesystem, records
from ...shared.records import FAILED, Launch
from .. import children, paths
from ..environments import versions
from ..machine import leases, lock, process
from ..queue import places
from ..reports import history
from ..supervision.supervisor import Supervisor, print_to_log
from ..supervision.trials.slot import SlotSupervisor
from ..supervision.watch import SIGNALS

READY = b"ours\n"


def supervise(task_dir: str, *descriptors: Union[int, str]) -> None:
    """Supervise the task of `task_dir` until it has ended.

    The first of the `descriptors` is a pipe, to which READY is written when the supervisor has
    adopted the others: the task's lock and leases, which the parent process has acquired. If the
    disk is full, the arguments of its OSError are written, in JSON.
    """
    ready_pipe, *inherited = map(int, descriptors)
    launch = records.load(Launch, paths.launch(task_dir))
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    lock.adopt(inherited[0])
    leases.adopt(inherited[1:])
    kind = SlotSupervisor if launch.trials.points else Supervisor
    try:
        supervisor = kind(launch, task_dir, inherited[1:])
    except OSError as error:
        if filesystem.is_disk_full(error):
            reason = [error.errno, error.strerror, str(error.filename or task_dir)]
            os.write(ready_pipe, json.dumps(reason).encode())
        raise
    os.write(ready_pipe, READY)
    os.close(ready_pipe)
    try:
        if supervisor.wait_for_turn():
            if supervisor.launch.gpus.indexes:  # first: that process is none of the task's
                _record_gpus(supervisor.launch, task_dir)
            with suppress(OSError):  # training continues without
                states = paths.history(launch.project, launch.run, launch.task)
                history.record_versions(states, versions.installed(launch))
            process.adopt_orphans(True)
            supervisor.record_pace()
            if launch.limits.max_duration_s is not None:
                places.announce_end(time.monotonic() + launch.limits.max_duration_s)
            supervisor.run()
        else:
            supervisor.leave()
    except Exception as error:
        print_to_log(error)
        process.end_all(supervisor.mark, None, 0.0, os.getpid())
        supervisor.write(FAILED, reason="its supervisor failed, see supervisor.log")
        supervisor.leave()
    # The lock, inherited[0], stays held until this process is gone: `stop` waits for that.


def _record_gpus(launch: Launch, task_dir: str) -> None:
    """Start the process that keeps the use of the task's GPUs. It ends when this one has ended."""
    path = paths.gpu_history(launch.project, launch.run, launch.task)
    problems = paths.gpu_problems(task_dir)
    # This process keeps the other end open as long as it lives, and passes it to no program.
    ended, _ = os.pipe()
    title, log = "tfdeploy gpu-history {}".format(task_dir), paths.supervisor_log(task_dir)
    rest = (launch.gpus.indexes, ended, launch.limits.idle_gpu_stop_s)
    try:
        children.run_detached(
            lambda: history.record_gpus(path, problems, *rest), title, log, [ended]
        )
    except OSError as error:  # training continues without
        print_to_log(error)
    finally:
        os.close(ended)
