"""Check everything, then start all tasks of this host, or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import Dict, Iterator, List, Optional

from ...shared import filesystem, records
from ...shared.filesystem import PRIVATE
from ...shared.protocol.record import replace
from ...shared.protocol.runs import RunRecord
from ...shared.records import Launch, Notification, gpu_need
from .. import children, paths
from ..machine import gpus, leases, lock, logind
from ..machine.devices import vendors
from ..queue import resources
from ..refusal import Refusal
from ..releases import work_directory
from . import run_record, start_checks, stop
from .supervise import READY, supervise


def start_tasks(launches: List[Launch], record: Optional[RunRecord] = None) -> List[str]:
    """Start the tasks in the given order; return once each has its supervisor, with what is wrong
    with GPUs that they were not given for it.

    `record` is the run's record, stored beside the tasks. Tasks that have ended before continue in
    their directories. Raises Refusal; then no task has started.
    """
    _require_lasting_session()
    launches = [_on_this_host(launch) for launch in launches]
    start_checks.check_releases(launches)
    for launch in launches:
        start_checks.check(launch)
    found: Dict[int, str] = {}
    sick: Dict[int, Refusal] = {}
    if any(launch.gpus.indexes for launch in launches):
        found = vendors.resources()
        start_checks.check_gpus(launches, found)
        launches = [_with_existing_gpus(launch, found) for launch in launches]
        sick = {} if launches[0].turn.submitted else gpus.sick(gpu_need(launches))
    if launches[0].turn.submitted:
        launches, task_leases = resources.enter_queue(launches, found)
    else:
        launches, task_leases = resources.acquire(launches, found, sick)
    started: List[Launch] = []
    try:
        for launch in launches:
            with _prepare_task(launch) as task_lock:
                started.append(launch)
                _fork_supervisor(launch, [task_lock, *task_leases[launch.task]])
        if record is not None:
            run_record.store(launches[0].project, launches[0].run, record)
        return [refusal.message for refusal in sick.values()]
    except (OSError, Refusal):
        for launch in started:
            stop.stop_task(launch.project, launch.run, launch.task)
        raise
    finally:
        for descriptors in task_leases.values():
            leases.release(descriptors)


def _require_lasting_session() -> None:
    refusal = logind.logout_refusal()
    if refusal is not None:
        raise refusal


def _on_this_host(launch: Launch) -> Launch:
    """Expand words such as `~/tf/bin/python`, as a shell does, with this host's home directory, and
    fill in the task's own directory, and its environment."""
    expand = start_checks.expand_home
    process = replace(launch.process, argv=[expand(word) for word in launch.process.argv])
    launch = replace(launch, process=process)
    if launch.notify != Notification():
        targets = launch.notify.targets().items()
        expanded = {key: [expand(word) for word in target] for key, target in targets}
        launch = replace(launch, notify=replace(launch.notify, **expanded))
    task_dir = paths.task(launch.project, launch.run, launch.task)
    launch = launch.in_directory(paths.work(task_dir))
    return _in_environment(launch) if launch.process.environment else launch


def _with_existing_gpus(launch: Launch, found: Dict[int, str]) -> Launch:
    """Let a task choose only of GPUs that exist: `gpus` in hosts.toml may be a larger count."""
    choice = [gpu for gpu in launch.gpus.choice if gpu in found]
    return replace(launch, gpus=replace(launch.gpus, choice=choice))


def _in_environment(launch: Launch) -> Launch:
    """Put the programs of the task's environment first, as its activation does."""
    folder = paths.environment(launch.project, launch.process.environment)
    inherited = launch.process.env.get("PATH") or os.environ.get("PATH") or os.defpath
    path = os.pathsep.join([os.path.join(folder, "bin"), inherited])
    env = {**launch.process.env, "PATH": path, "VIRTUAL_ENV": folder}
    return replace(launch, process=replace(launch.process, env=env))


@contextmanager
def _prepare_task(launch: Launch) -> Iterator[int]:
    """Fill the task's directory; yield its lock, which is acquired before files are written."""
    task_dir = paths.task(launch.project, launch.run, launch.task)
    paths.make_task(launch.project, launch.run, launch.task)
    os.makedirs(paths.logs(launch.project, launch.run), exist_ok=True)
    os.makedirs(paths.work(task_dir), exist_ok=True)
    try:
        task_lock = lock.acquire(task_dir)
    except BlockingIOError:
        raise start_checks.already_running(launch) from None
    try:
        if not os.path.exists(paths.launch(task_dir)):
            _record_start(task_dir, launch.limits.age_s)
        records.write(paths.launch(task_dir), records.to_json(launch), PRIVATE)  # it has secrets
        work_directory.fill(launch, paths.work(task_dir))
        yield task_lock
    finally:
        os.close(task_lock)


def _record_start(task_dir: str, age_s: float) -> None:
    """Give the file `started` the time at which the run was first started, on any host, by this
    host's clock."""
    with open(paths.started(task_dir), "w") as file:
        if age_s:
            at = time.time() - age_s
            os.utime(file.fileno(), (at, at))


def _fork_supervisor(launch: Launch, inherited: List[int]) -> None:
    """Start a supervisor that inherits the task's lock and leases; wait until it has taken over. A
    fork takes a tenth of the time in which a new Python starts.

    Raises Refusal if the supervisor closes its pipe without a word, and OSError if the disk is
    full.
    """
    task_dir = paths.task(launch.project, launch.run, launch.task)
    log = paths.supervisor_log(task_dir)
    read_end, write_end = os.pipe()
    descriptors = [write_end, *inherited]
    try:
        scope = logind.scope_command()
        if scope:
            _start_in_scope(scope, task_dir, log, descriptors)
        else:
            main = partial(supervise, task_dir, *descriptors)
            children.run_detached(main, "tfdeploy supervise {}".format(task_dir), log, descriptors)
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        said = answer.read()
    if said == READY:
        return
    if said:
        raise OSError(*json.loads(said))
    raise Refusal("the supervisor did not start, see {}".format(log))


def _start_in_scope(scope: List[str], task_dir: str, log: str, descriptors: List[int]) -> None:
    """Start the supervisor as a new Python in another scope: processes of this login end with
    it."""
    words = ["supervise", task_dir, *map(str, descriptors)]
    with os.fdopen(filesystem.open_log(log)[0], "ab") as output:
        subprocess.Popen(
            [*scope, sys.executable, "-S", "-E", paths.agent(), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            pass_fds=descriptors,
            start_new_session=True,
        )
