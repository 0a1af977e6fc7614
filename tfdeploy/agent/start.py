"""The verb `start`: everything is checked first, then every task of this host starts, or none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

from . import TYPE_CHECKING, leases, lock, logout, paths, ports, records
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

    from .records import Launch

HANDOVER_S = 5.0


def start(launches: List[Launch]) -> List[Dict[str, Any]]:
    """Start the tasks in the order given; answers once each has its supervisor. Raises Refusal.

    Tasks that were started before and have ended go on in the directories they have.
    """
    _check_session()
    launches = [_at_home(launch) for launch in launches]
    gpus = leases.gpu_uuids() if any(launch.gpus for launch in launches) else {}
    for launch in launches:
        _check(launch, gpus)
    held = _leased(launches, gpus)
    started: List[Launch] = []
    try:
        for launch in launches:
            with _prepared(launch) as taken:
                started.append(launch)
                _supervise(launch, [taken, *held[launch.task]])
    except (OSError, Refusal):
        from . import stop  # what goes well needs none of it

        for launch in started:
            stop.stop_task(launch.project, launch.run, launch.task)
        raise
    finally:
        for descriptors in held.values():
            leases.release(descriptors)
    return [{"task": launch.task} for launch in launches]


def _at_home(launch: Launch) -> Launch:
    """A word as `~/tf/bin/python` means what it means to a shell; only its host knows the home."""
    return replace(launch, argv=[at_home(word) for word in launch.argv])


def at_home(word: str) -> str:
    return os.path.expanduser(word) if word.startswith("~/") else word


def _check_session() -> None:
    refused = logout.refusal()
    if refused is not None:
        raise Refusal(refused.message, refused.hint)


def _check(launch: Launch, gpus: Dict[int, str]) -> None:
    where = paths.release(launch.project, launch.release)
    _check_release(where, "release {}".format(launch.release))
    for place, release in launch.data.items():
        what = "data set {} ({})".format(place, release)
        _check_release(paths.release(launch.project, release), what)
    if lock.holder(paths.task(launch.project, launch.run, launch.task)) is not None:
        raise _going(launch)
    _check_program(launch, where)
    _check_gpus(launch, gpus)


def _check_release(path: str, what: str) -> None:
    if not os.path.isdir(path):
        raise Refusal("{} is not on this host".format(what), "tfdeploy push sends it there")


def _going(launch: Launch) -> Refusal:
    return Refusal(
        "{} of run {} is going already".format(launch.task, launch.run),
        "tfdeploy status --run {0} shows it, tfdeploy stop --run {0} ends it".format(launch.run),
    )


def _leased(launches: List[Launch], gpus: Dict[int, str]) -> Dict[str, List[int]]:
    """The leases of every task, all or none; then its ports are looked at, which nobody else who
    asks for leases can take any more."""
    wanted = {launch.task: _resources(launch, gpus) for launch in launches}
    flat = [resource for resources in wanted.values() for resource in resources]
    descriptors = _hold(flat)
    try:
        for launch in launches:
            for port in _ports(launch):
                ports.check(port, launch.task)
    except Refusal:
        leases.release(descriptors)
        raise
    taken = iter(descriptors)
    return {task: [next(taken) for _ in resources] for task, resources in wanted.items()}


def _resources(launch: Launch, gpus: Dict[int, str]) -> List[str]:
    ports = ["port/{}".format(port) for port in _ports(launch)]
    return [*ports, *(gpus[gpu] for gpu in launch.gpus)]


def _ports(launch: Launch) -> List[int]:
    """The chief's supervisor listens too."""
    ports = [] if launch.port is None else [launch.port]
    return [*ports, launch.circle.port] if launch.is_chief else ports


def _hold(resources: List[str]) -> List[int]:
    """Another start that is at work holds them itself for a moment, before its supervisors do."""
    deadline = time.monotonic() + HANDOVER_S
    while True:
        try:
            return leases.hold(resources)
        except leases.Taken as taken:
            if taken.holder.run or time.monotonic() > deadline:
                raise leases.refused(taken.resource, taken.holder) from None
        time.sleep(0.05)


def _check_program(launch: Launch, release: str) -> None:
    if not is_program(launch.argv[0], launch.env, release):
        raise no_program(launch.argv[0], launch.task)


def is_program(program: str, env: Dict[str, str], folder: str) -> bool:
    """Whether a process with this `env`, begun in this `folder`, can run it."""
    folders = [folder] if "/" in program else os.get_exec_path({**os.environ, **env})
    return any(_is_program(os.path.join(folder, program)) for folder in folders)


def no_program(program: str, task: str) -> Refusal:
    return Refusal(
        "the program {} of {} is not on this host".format(program, task),
        "give its absolute path, or set the host's python",
    )


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _check_gpus(launch: Launch, found: Dict[int, str]) -> None:
    missing = [gpu for gpu in launch.gpus if gpu not in found]
    if missing:
        raise Refusal(
            "{} is to have GPU {}, and nvidia-smi lists {} here".format(
                launch.task, missing[0], len(found)
            ),
            "correct the host's gpus",
        )


@contextmanager
def _prepared(launch: Launch) -> Iterator[int]:
    """The task's directory, and its lock: from the first look on the task is seen to be ours."""
    task_dir = paths.task(launch.project, launch.run, launch.task)
    paths.make_private(launch.project)
    os.makedirs(paths.logs(launch.project, launch.run), exist_ok=True)
    os.makedirs(paths.work(task_dir), exist_ok=True)
    try:
        taken = lock.take(task_dir)
    except BlockingIOError:
        raise _going(launch) from None
    try:
        records.write(paths.launch(task_dir), records.to_json(launch))
        _link_releases(launch, paths.work(task_dir))
        _write_files(launch, paths.work(task_dir))
        _link_paths(launch, paths.work(task_dir))
        yield taken
    finally:
        os.close(taken)


def _link_releases(launch: Launch, work: str) -> None:
    """The task's directory shows the releases by links, and holds what the task itself writes."""
    places = (launch.checkpoint_dir, *launch.data, *launch.files)
    own = [os.path.normpath(path).split(os.sep) for path in places]
    _link_all(paths.release(launch.project, launch.release), work, own)
    for place, release in launch.data.items():
        here = os.path.join(work, place)
        os.makedirs(os.path.dirname(here), exist_ok=True)
        if not os.path.lexists(here):
            os.symlink(paths.release(launch.project, release), here)


def _write_files(launch: Launch, work: str) -> None:
    """What tells the task its role by a file: as it is now, for a run may go on elsewhere."""
    for place, text in launch.files.items():
        here = os.path.join(work, place)
        os.makedirs(os.path.dirname(here), exist_ok=True)
        with open(here, "w", encoding="utf-8") as file:
            file.write(text)


def _link_paths(launch: Launch, work: str) -> None:
    """What they lead to is made, for a link to nothing is in the way of a makedirs()."""
    for place, path in launch.links.items():
        here = os.path.join(work, place)
        folder = os.path.dirname(here)
        os.makedirs(os.path.join(folder, path), exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(here):
            os.remove(here)
        if not os.path.lexists(here):
            os.symlink(path, here)


def _link_all(source: str, target: str, own: List[List[str]]) -> None:
    """Link what `source` holds, but for the paths `own`: checkpoints are not written into a
    release, and data sets come from others. A folder on the way to one is a folder here too. What
    stands here already, stays."""
    for name in os.listdir(source):
        here, there = os.path.join(target, name), os.path.join(source, name)
        inside = [path[1:] for path in own if path[0] == name]
        if not inside:
            if not os.path.lexists(here):
                os.symlink(there, here)
        elif all(inside) and os.path.isdir(there) and not os.path.islink(there):
            os.makedirs(here, exist_ok=True)
            _link_all(there, here, inside)


def _supervise(launch: Launch, held: List[int]) -> None:
    """Begin a supervisor in a session of its own, hand it the task's lock and leases, and wait
    until it has taken the task over."""
    task_dir = paths.task(launch.project, launch.run, launch.task)
    read_end, write_end = os.pipe()
    try:
        _begin(task_dir, [write_end, *held])
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        if not answer.read():
            raise Refusal("a supervisor did not start, see {}/supervisor.log".format(task_dir))


def _begin(task_dir: str, descriptors: List[int]) -> None:
    """Most are forked, which takes a tenth of a Python's own start. What has to leave the scope of
    this login has to be run by who can do that."""
    log = os.path.join(task_dir, "supervisor.log")
    scope = logout.outliving()
    if not scope:
        from . import apart, supervisor

        title = "tfdeploy supervise {}".format(task_dir)
        apart.begin(lambda: supervisor.supervise(task_dir, *descriptors), title, log, descriptors)
        return
    words = ["supervise", task_dir, *map(str, descriptors)]
    with open(log, "ab") as output:
        subprocess.Popen(
            [*scope, sys.executable, "-S", "-E", paths.agent(), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            pass_fds=descriptors,
            start_new_session=True,
        )
