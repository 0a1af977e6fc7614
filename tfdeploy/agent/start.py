"""The verb `start`: everything is checked first, then every task of this host starts, or none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Dict, List

from . import paths, process, records, stop
from .refusal import Refusal

if TYPE_CHECKING:
    from .records import Launch


def start(launches: List[Launch]) -> List[Dict[str, Any]]:
    """Start the tasks in the order given; answers once each has its supervisor. Raises Refusal."""
    gpus = _gpu_count() if any(launch.gpus for launch in launches) else 0
    for launch in launches:
        _check(launch, gpus)
    started: List[Launch] = []
    try:
        for launch in launches:
            _prepare(launch)
            started.append(launch)
            _supervise(paths.task(launch.project, launch.run, launch.task))
    except (OSError, Refusal):
        for launch in started:
            stop.stop_task(launch.project, launch.run, launch.task)
        raise
    return [{"task": launch.task} for launch in launches]


def _check(launch: Launch, gpus: int) -> None:
    where = paths.release(launch.project, launch.release)
    if not os.path.isdir(where):
        raise Refusal(
            "release {} is not on this host".format(launch.release), "tfdeploy push sends it there"
        )
    if os.path.exists(paths.task(launch.project, launch.run, launch.task)):
        raise Refusal("{} of run {} was started before".format(launch.task, launch.run))
    _check_port(launch)
    _check_program(launch, where)
    _check_gpus(launch, gpus)


def _check_port(launch: Launch) -> None:
    if launch.port is None or _is_free(launch.port):
        return
    pid = process.holder(launch.port)
    held = process.described(pid) if pid else "a process of another user"
    raise Refusal(
        "port {} for {} is taken by {}".format(launch.port, launch.task, held),
        "stop that one, or give the host other ports",
    )


def _is_free(port: int) -> bool:
    """TensorFlow listens on every interface, so a listener on any of them is in its way."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except PermissionError:
            raise Refusal(
                "port {} may not be opened by this user".format(port),
                "ports below 1024 are root's: give the host others",
            ) from None
        except OSError:
            return False
    return True


def _check_program(launch: Launch, release: str) -> None:
    program = launch.argv[0]
    path = launch.env.get("PATH", os.environ.get("PATH"))
    where = os.path.join(release, program) if "/" in program else program
    if shutil.which(where, path=path) is None:
        raise Refusal(
            "the program {} of {} is not on this host".format(program, launch.task),
            "give its absolute path, or set the host's python",
        )


def _check_gpus(launch: Launch, found: int) -> None:
    missing = [gpu for gpu in launch.gpus if gpu >= found]
    if missing:
        raise Refusal(
            "{} is to have GPU {}, and nvidia-smi lists {} here".format(
                launch.task, missing[0], found
            ),
            "correct the host's gpus",
        )


def _gpu_count() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith(b"GPU ") for line in listed.stdout.splitlines())


def _prepare(launch: Launch) -> None:
    task_dir = paths.task(launch.project, launch.run, launch.task)
    paths.make_private(launch.project)
    os.makedirs(paths.logs(launch.project, launch.run), exist_ok=True)
    os.makedirs(paths.work(task_dir))
    _link_release(launch, paths.work(task_dir))
    records.write(paths.launch(task_dir), records.to_json(launch))


def _link_release(launch: Launch, work: str) -> None:
    """The task's directory shows the release by links, and holds what the task itself writes."""
    own = os.path.normpath(launch.checkpoint_dir).split(os.sep)
    _link_all(paths.release(launch.project, launch.release), work, own)


def _link_all(source: str, target: str, own: List[str]) -> None:
    """Link what `source` holds, but for the path `own`: checkpoints are not written into a release.
    A folder on the way to it is a folder here too."""
    for name in os.listdir(source):
        here, there = os.path.join(target, name), os.path.join(source, name)
        if name != own[0]:
            os.symlink(there, here)
        elif own[1:] and os.path.isdir(there) and not os.path.islink(there):
            os.mkdir(here)
            _link_all(there, here, own[1:])


def _supervise(task_dir: str) -> None:
    """Start a supervisor in a session of its own, and wait until it has taken the task over."""
    read_end, write_end = os.pipe()
    with open(os.path.join(task_dir, "supervisor.log"), "ab") as log:
        subprocess.Popen(
            [sys.executable, paths.agent(), "supervise", task_dir, str(write_end)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            pass_fds=(write_end,),
            start_new_session=True,
        )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        if answer.read(1) != b"+":
            raise Refusal("a supervisor did not start, see {}/supervisor.log".format(task_dir))
