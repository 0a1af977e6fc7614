"""Where tfdeploy stores files on a host. The root is found from the agent's own folder.

<root>/.id                                    the root's id, see machine/shared_directory.py
<root>/agent/<hash>/                          one version of the agent
<root>/.cache/                                of installers, emptied by prune
<root>/<project>/releases/<release>/          written once, then read-only
<root>/<project>/manifests/<release>.json     what a release contains
<root>/<project>/envs/<environment>/          a Python environment, see environments/
<root>/<project>/runs/<run>/logs/<task>.log   a task's log; .log.1 is the part before it
<root>/<project>/runs/<run>/logs/<task>.log.times  when its lines were written
<root>/<project>/runs/<run>/logs/<task>.history.jsonl  each change of a task's state
<root>/<project>/runs/<run>/replica/          a copy of the chief's newest checkpoint
<root>/<project>/runs/<run>/replica-outputs/  copies of its other files (output_replicas.py)
<root>/<project>/runs/<run>/record.json       the run's record, see runs/run_record.py
<root>/<project>/runs/<run>/<task>/           launch.json  state.json  lock  supervisor.log
<root>/<project>/runs/<run>/<task>/saves.json  where its program saved elsewhere
<root>/<project>/runs/<run>/<task>/notice.json  which notification of the run's end has failed
<root>/<project>/runs/<run>/<task>/peers      the addresses from which other hosts may connect
<root>/<project>/runs/<run>/<task>/work/      the task's directory
"""

from __future__ import annotations

import os
import stat
import sys

from . import TYPE_CHECKING
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import List


def agent() -> str:
    """Return the agent's folder: this process was started with its absolute path."""
    return sys.argv[0]


def root() -> str:
    return os.path.dirname(os.path.dirname(agent()))


def boot_id() -> str:
    """Return the id of this boot of the machine; "" if it is unknown. Source: random(4)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def make_private(project: str) -> None:
    """Create a project's folder. Other users can't read it: it has environments, logs, weights.

    Nobody else may write to one that exists. Raises Refusal if it belongs to another user."""
    folder = os.path.join(root(), project)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.stat(folder)
    if found.st_uid != os.geteuid():
        raise Refusal(
            "{} belongs to another user".format(folder),
            "set the host's directory in hosts.toml to a folder of your own",
        )
    if found.st_mode & 0o022:
        os.chmod(folder, stat.S_IMODE(found.st_mode) & ~0o022)


def releases(project: str) -> str:
    return os.path.join(root(), project, "releases")


def release(project: str, release_id: str) -> str:
    return os.path.join(releases(project), release_id)


def incoming(project: str, release_id: str) -> str:
    """Return the folder of a release until it is complete; its dot hides it from other verbs."""
    return os.path.join(releases(project), ".incoming-" + release_id)


def manifests(project: str) -> str:
    return os.path.join(root(), project, "manifests")


def manifest(project: str, release_id: str) -> str:
    """Return the file that lists what a release contains. Runs see the release, but not this."""
    return os.path.join(manifests(project), release_id + ".json")


def cache() -> str:
    """Return the cache of uv and pip. It is on the same file system as the environments, so that
    uv can make hard links to it."""
    return os.path.join(root(), ".cache")


def environments(project: str) -> str:
    return os.path.join(root(), project, "envs")


def environment(project: str, name: str) -> str:
    return os.path.join(environments(project), name)


def environment_lock(project: str, name: str) -> str:
    """Return the file that is locked while the environment is built; its dot hides it."""
    return os.path.join(environments(project), ".{}.lock".format(name))


def runs(project: str) -> str:
    return os.path.join(root(), project, "runs")


def run(project: str, run_id: str) -> str:
    return os.path.join(runs(project), run_id)


def record(project: str, run_id: str) -> str:
    return os.path.join(run(project, run_id), "record.json")


def logs(project: str, run_id: str) -> str:
    return os.path.join(run(project, run_id), "logs")


def log(project: str, run_id: str, task: str) -> str:
    return os.path.join(logs(project, run_id), file_name(task) + ".log")


def history(project: str, run_id: str, task: str) -> str:
    return os.path.join(logs(project, run_id), file_name(task) + ".history.jsonl")


def task(project: str, run_id: str, name: str) -> str:
    return os.path.join(run(project, run_id), file_name(name))


def file_name(name: str) -> str:
    """Return a task's name in paths: `worker-1` for `worker:1`."""
    return name.replace(":", "-")


def tasks(project: str, run_id: str) -> List[str]:
    """Return the names of a run's tasks on this host, in no order."""
    folder = run(project, run_id)
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if os.path.exists(launch(entry.path))]
    return [name.replace("-", ":") for name in names]


def launch(task_dir: str) -> str:
    return os.path.join(task_dir, "launch.json")


def state(task_dir: str) -> str:
    return os.path.join(task_dir, "state.json")


def lock(task_dir: str) -> str:
    return os.path.join(task_dir, "lock")


def saves(task_dir: str) -> str:
    return os.path.join(task_dir, "saves.json")


def notice(task_dir: str) -> str:
    return os.path.join(task_dir, "notice.json")


def peers(task_dir: str) -> str:
    return os.path.join(task_dir, "peers")


def work(task_dir: str) -> str:
    return os.path.join(task_dir, "work")


def checkpoints(task_dir: str, checkpoint_dir: str) -> str:
    """Return where a task saves checkpoints: `checkpoint_dir`, relative to its work directory."""
    return os.path.join(work(task_dir), checkpoint_dir)
