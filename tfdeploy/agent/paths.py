"""Where everything lies on a host. The agent's own folder says where the root is.

<root>/.id                                    names the root, see roots.py
<root>/agent/<hash>/
<root>/<project>/releases/<release>/          written once, then read-only
<root>/<project>/manifests/<release>.json
<root>/<project>/runs/<run>/logs/<task>.log   (and .log.1, what it held before)
<root>/<project>/runs/<run>/replica/           a copy of the chief's newest checkpoint
<root>/<project>/runs/<run>/<task>/           launch.json  state.json  lock  supervisor.log
<root>/<project>/runs/<run>/<task>/work/      the task's directory
"""

from __future__ import annotations

import os
import sys

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List


def agent() -> str:
    """The folder that this process runs from; whoever runs it names it whole."""
    return sys.argv[0]


def root() -> str:
    return os.path.dirname(os.path.dirname(agent()))


def boot() -> str:
    """Names this boot of the machine. Source: random(4), /proc/sys/kernel/random/boot_id."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def make_private(project: str) -> None:
    """What a project keeps here (environments, logs, weights) is not for the host's other users."""
    os.makedirs(os.path.join(root(), project), mode=0o700, exist_ok=True)


def releases(project: str) -> str:
    return os.path.join(root(), project, "releases")


def release(project: str, release_id: str) -> str:
    return os.path.join(releases(project), release_id)


def incoming(project: str, release_id: str) -> str:
    """Where a release grows until it is whole; the leading dot hides it from every other verb."""
    return os.path.join(releases(project), ".incoming-" + release_id)


def manifests(project: str) -> str:
    return os.path.join(root(), project, "manifests")


def manifest(project: str, release_id: str) -> str:
    """What a whole release holds: it is not in the release, for every run would see it."""
    return os.path.join(manifests(project), release_id + ".json")


def run(project: str, run_id: str) -> str:
    return os.path.join(root(), project, "runs", run_id)


def logs(project: str, run_id: str) -> str:
    return os.path.join(run(project, run_id), "logs")


def log(project: str, run_id: str, task: str) -> str:
    return os.path.join(logs(project, run_id), file_name(task) + ".log")


def task(project: str, run_id: str, name: str) -> str:
    return os.path.join(run(project, run_id), file_name(name))


def file_name(name: str) -> str:
    """`worker:1` is `worker-1` in paths."""
    return name.replace(":", "-")


def tasks(project: str, run_id: str) -> List[str]:
    """The names of the tasks that this host holds of a run, in no order."""
    folder = run(project, run_id)
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        held = [e.name for e in entries if os.path.exists(launch(e.path))]
    return [name.replace("-", ":") for name in held]


def launch(task_dir: str) -> str:
    return os.path.join(task_dir, "launch.json")


def state(task_dir: str) -> str:
    return os.path.join(task_dir, "state.json")


def lock(task_dir: str) -> str:
    return os.path.join(task_dir, "lock")


def work(task_dir: str) -> str:
    return os.path.join(task_dir, "work")


def checkpoints(task_dir: str, checkpoint_dir: str) -> str:
    """Where a task saves: its launch's `checkpoint_dir`, within its work unless absolute."""
    return os.path.join(work(task_dir), checkpoint_dir)
