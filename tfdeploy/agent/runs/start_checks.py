"""What must be true before a task starts: release, data, environment, program, GPUs are present."""

from __future__ import annotations

import os
import shlex
from typing import Dict, List, Optional

from ...shared.records import OPEN, Launch, Notification, gpu_need, is_url
from .. import paths
from ..environments import marker
from ..machine import guard, lock
from ..refusal import Refusal
from ..releases import changes


def check_releases(launches: List[Launch]) -> None:
    """Raise Refusal if a release or a data set of these tasks is not on this host as it was
    received."""
    names = {
        (each.project, each.directory.release): "release {}".format(each.directory.release)
        for each in launches
    }
    for launch in launches:
        for place, data_set in launch.directory.data.items():
            what = "data set {} ({})".format(place, data_set)
            names[launch.project, data_set] = what
    for (project, release), what in names.items():
        _check_release(project, release, what)


def check(launch: Launch) -> None:
    """Check one task. Raises Refusal."""
    release = paths.release(launch.project, launch.directory.release)
    if launch.process.environment and not marker.is_complete(
        launch.project, launch.process.environment
    ):
        raise Refusal(
            "environment {} is not on this host".format(launch.process.environment),
            "build it with tfdeploy push",
        )
    if lock.holder(paths.task(launch.project, launch.run, launch.task)) is not None:
        raise already_running(launch)
    check_program(launch, release)
    if launch.notify != Notification():
        _check_notify(launch, release)
    refusal = guard_refusal(launch.endpoint.network)
    if refusal is not None:
        raise refusal


def check_program(launch: Launch, release: str) -> None:
    """Raise Refusal if the task's program does not exist; `release` is the release's folder."""
    if not is_program(launch.process.argv[0], launch.process.env, release):
        raise missing_program(launch.process.argv[0], launch.task, release)


def _check_notify(launch: Launch, release: str) -> None:
    """Raise Refusal if a program of [notify] does not exist: at the end it is too late."""
    for key, target in launch.notify.targets().items():
        if not is_url(target) and not is_program(target[0], {}, release):
            raise missing_program(target[0], "notify." + key, release)


def is_program(program: str, env: Dict[str, str], folder: str) -> bool:
    """Return whether a process that starts in `folder` with this `env` can run the program."""
    folders = [folder] if "/" in program else os.get_exec_path({**os.environ, **env})
    found = (os.path.join(folder, program) for folder in folders)
    return any(os.path.isfile(path) and os.access(path, os.X_OK) for path in found)


def missing_program(program: str, task: str, folder: str) -> Refusal:
    """Return why a process that starts in `folder` cannot run the program."""
    if "/" in program and os.path.isfile(os.path.join(folder, program)):
        word = shlex.quote(os.path.normpath(program))
        again = "" if os.path.isabs(program) else " in the source; then push again"
        words = "the program {} of {} is not executable".format(program, task)
        return Refusal(words, "chmod +x {}{}".format(word, again))
    return Refusal(
        "the program {} of {} is not on this host".format(program, task),
        "give its absolute path, or set the host's python",
    )


def guard_refusal(network: str) -> Optional[Refusal]:
    """Return why this host cannot guard the ports of its tasks, if `network` requires it."""
    if network == OPEN:
        return None
    try:
        guard.prepare()
    except guard.NotLoadable as error:
        return Refusal(
            "the ports of its tasks cannot be guarded: {}".format(error),
            'network = "open" in hosts.toml lets everybody who reaches the hosts connect to the '
            "tasks, and run programs as your user",
        )
    return None


def already_running(launch: Launch) -> Refusal:
    return Refusal(
        "{} of run {} is already running".format(launch.task, launch.run),
        "see it with tfdeploy status --run {0}, or stop it with tfdeploy stop --run {0}".format(
            launch.run
        ),
    )


def expand_home(word: str) -> str:
    """Expand a leading `~/` with this host's home directory."""
    return os.path.expanduser(word) if word.startswith("~/") else word


def _check_release(project: str, release: str, what: str) -> None:
    if not os.path.isdir(paths.release(project, release)):
        raise Refusal("{} is not on this host".format(what), "send it with tfdeploy push")
    changed = changes.changed_file(project, release)
    if changed:
        raise Refusal(
            "{} was changed on this host: {}".format(what, changed),
            "tfdeploy push sends it again",
        )


def check_gpus(launches: List[Launch], gpus: Dict[int, str]) -> None:
    """Raise Refusal if the host lacks GPUs that its tasks need, even if all of them were free."""
    need = gpu_need(launches)
    if len([gpu for gpu in need.gpus if gpu in gpus]) >= need.count:
        return
    found = {0: "no GPU", 1: "1 GPU"}.get(len(gpus), "{} GPUs".format(len(gpus)))
    task, missing = next(
        (e.task, gpu) for e in launches for gpu in e.gpus.indexes if gpu not in gpus
    )
    chooses = any(launch.gpus.choice for launch in launches)
    needs = "its tasks need {} GPUs".format(need.count)
    raise Refusal(
        "{}, but its host has {}".format(
            needs if chooses else "{} needs GPU {}".format(task, missing), found
        ),
        "set the host's gpus = {}, and start fewer tasks with GPUs there".format(len(gpus))
        if chooses and gpus
        else "correct the host's gpus: nvidia-smi -L lists them, or rocm-smi",
    )
