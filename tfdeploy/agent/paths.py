"""Where tfdeploy stores files on a host. The root is found from the agent's own folder.

The store has what hosts can share, and is the root itself if this host shares nothing. With
`shared_fs` each host has the root <store>/.hosts/<host>, with its agent, runs, locks and logs.

docs/architecture.md, "On each host", shows both as a tree.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Callable, List, Set, Tuple

from ..shared import filesystem, own_folders
from .refusal import Refusal

OWN_ROOTS = ".hosts"
TRIALS = "trials"  # in the directory of a slot
LOGS, WORK, HELD, INCOMING, RESUMING = "logs", "work", "held", "incoming-", ".resuming"
CHANGING = ".changing"
OTHER_LOGS = (".1", ".new")  # supervision/log.py adds them to a log's name


def agent() -> str:
    """Return the agent's folder: this process was started with its absolute path."""
    return sys.argv[0]


def root() -> str:
    return os.path.dirname(os.path.dirname(agent()))


def store() -> str:
    """Return the folder of releases and environments, which other hosts may use as well."""
    roots = os.path.dirname(root())
    return os.path.dirname(roots) if os.path.basename(roots) == OWN_ROOTS else root()


def is_shared() -> bool:
    """Return whether hosts.toml says that other hosts use the same store."""
    return store() != root()


def boot_id() -> str:
    """Return the id of this boot of the machine; "" if it is unknown. Source: random(4)."""
    return filesystem.read_if_possible("/proc/sys/kernel/random/boot_id").decode().strip()


def make_private(project: str) -> None:
    """Create a project's folders. Other users can't read them: environments, logs, weights.

    Nobody else may write to one that exists. Raises Refusal if it belongs to another user, or if
    another user could replace it."""
    for folder in {os.path.join(root(), project), os.path.join(store(), project)}:
        _make_private(folder)
        refuse_unsafe(folder)


def make_task(project: str, run_id: str, name: str) -> None:
    """Create a task's folder and those above it, into which nobody else may write, as for
    `make_private`: a restart checks all of them. What the task creates has the user's umask."""
    make_private(project)
    for folder in (runs(project), run(project, run_id), task(project, run_id, name)):
        _make_private(folder)


def refuse_unsafe(folder: str) -> None:
    """Raise Refusal if another user could replace a folder."""
    unsafe, mend = own_folders.find_unsafe(folder)
    if unsafe:
        raise Refusal(unsafe, mend)


def refuse_unreadable(project: str, run_id: str = "") -> None:
    """Raise Refusal if a folder of a project, or of a run, exists and can't be read: nothing may be
    concluded from what is not found in it."""
    folders = [os.path.join(root(), project), runs(project)]
    folders += [run(project, run_id)] if run_id else []
    for folder in folders:
        if os.path.isdir(folder):
            if not os.access(folder, os.R_OK | os.X_OK):
                raise _unreadable(folder)
        elif os.path.lexists(folder):
            is_link = os.path.islink(folder)
            what = "which does not exist" if is_link else "not a folder"
            hint = "on this host: mv {0} {0}.found".format(_quoted(folder))
            found = filesystem.kind(folder)
            raise Refusal("{} is {}, {}".format(folder, found, what), hint)


def _unreadable(folder: str) -> Refusal:
    import pwd  # rarely needed

    owner = os.stat(folder).st_uid
    hint = "on this host: chmod u+rwx {}".format(_quoted(folder))
    if owner != os.geteuid():
        names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == owner]
        hint = "it belongs to {}: on this host, as root: chown -R {} {}".format(
            (names or [str(owner)])[0], os.geteuid(), _quoted(folder)
        )
    return Refusal("can't read {}: permission denied".format(folder), hint)


def _quoted(path: str) -> str:
    import shlex  # rarely needed

    return shlex.quote(path)


def _make_private(folder: str) -> None:
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
    return os.path.join(store(), project, "releases")


def release(project: str, release_id: str) -> str:
    return os.path.join(releases(project), release_id)


def incoming(project: str, release_id: str) -> str:
    """Return the folder of a release until it is complete; its dot hides it from other verbs."""
    return os.path.join(releases(project), ".incoming-" + release_id)


def manifests(project: str) -> str:
    return os.path.join(store(), project, "manifests")


def manifest(project: str, release_id: str) -> str:
    """Return the file that lists what a release contains. Runs see the release, but not this."""
    return os.path.join(manifests(project), release_id + ".json")


def cache() -> str:
    """Return the cache of uv and pip. It is on the same file system as the environments, so that
    uv can make hard links to it."""
    return os.path.join(store(), ".cache")


def cache_lock() -> str:
    """Return the file that builds lock while they use the cache."""
    return cache() + ".lock"


def environments(project: str) -> str:
    return os.path.join(store(), project, "envs")


def environment(project: str, name: str) -> str:
    return os.path.join(environments(project), name)


def environment_lock(project: str, name: str) -> str:
    """Return the file that is locked while the environment is built; its dot hides it."""
    return os.path.join(environments(project), ".{}.lock".format(name))


def runs(project: str) -> str:
    return os.path.join(root(), project, "runs")


def runs_of_all_hosts(project: str) -> List[str]:
    """Return the folders of runs of each host that may use this store."""
    roots = os.path.join(store(), OWN_ROOTS)
    hosts = sorted(os.listdir(roots)) if os.path.isdir(roots) else []
    return [os.path.join(top, project, "runs")
            for top in [store(), *(os.path.join(roots, host) for host in hosts)]]  # fmt: skip


def run(project: str, run_id: str) -> str:
    return os.path.join(runs(project), run_id)


def removals(project: str) -> str:
    """Return the file that says which runs were deleted from this host."""
    return os.path.join(root(), project, "removals.jsonl")


# The names of what tfdeploy itself stores in a run's folder and in a task's; see is_own().
_OWN_IN_RUN: Set[str] = {HELD, RESUMING, CHANGING}
_OWN_IN_TASK: Set[str] = {HELD}
_OWN_IN_LOGS: Set[str] = set()


def _in_run(name: str) -> Callable[[str, str], str]:
    """Return a function that returns the file or folder of this name in a run's folder."""
    _OWN_IN_RUN.add(name)
    return lambda project, run_id: os.path.join(run(project, run_id), name)


record = _in_run("record.json")
logs = _in_run(LOGS)
verified = _in_run("verified.json")  # which checkpoints TensorFlow has read to their end
replica_dir = _in_run("replica")  # in TensorFlow's checkpoint layout
replica = _in_run("replica.json")  # which checkpoints it has


def _of_logs(ending: str) -> Callable[[str, str, str], str]:
    """Return a function that returns the file of a task among its run's logs."""
    _OWN_IN_LOGS.add(ending)
    return lambda project, run_id, task: os.path.join(
        logs(project, run_id), file_name(task) + ending
    )


log = _of_logs(".log")
history = _of_logs(".history.jsonl")  # each change of its state
gpu_history = _of_logs(".gpus.jsonl")  # the use of its GPUs over time
pace_history = _of_logs(".pace.jsonl")  # its steps and its host's counters over time
trials = _of_logs(".trials.jsonl")  # a slot's, see shared/trials.py


def trial(task_dir: str, number: int) -> str:
    """Return the directory of a trial; what it prints is beside it, in <number>.log."""
    return os.path.join(work(task_dir), TRIALS, str(number))


def task(project: str, run_id: str, name: str) -> str:
    return os.path.join(run(project, run_id), file_name(name))


def file_name(name: str) -> str:
    """Return a task's name in paths: `worker-1` for `worker:1`."""
    return name.replace(":", "-")


def parts_of_task(task_dir: str) -> Tuple[str, str, str]:
    """Return the project, run and name of the task with this folder."""
    project, _, run_id, name = task_dir.split(os.sep)[-4:]
    return project, run_id, name.replace("-", ":")


def tasks(project: str, run_id: str) -> List[str]:
    """Return the names of a run's tasks on this host, in no order."""
    folder = run(project, run_id)
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if os.path.exists(launch(entry.path))]
    return [name.replace("-", ":") for name in names]


def _in_task(name: str) -> Callable[[str], str]:
    """Return a function that returns the file or folder of this name in a task's folder."""
    _OWN_IN_TASK.add(name)
    return lambda task_dir: os.path.join(task_dir, name)


launch = _in_task("launch.json")
state = _in_task("state.json")
lock = _in_task("lock")
saves, older_saves = _in_task("saves"), _in_task("saves.1")  # what it wrote elsewhere
versions = _in_task("versions")  # the task's process reports in it what it has imported
supervisor_log = _in_task("supervisor.log")
started = _in_task("started")  # empty; its time is that of the run's first start
notice = _in_task("notice.json")  # which notification of the run's end has failed
gpu_problems = _in_task("gpu_problems.json")  # what may be wrong with its GPUs
replaced = _in_task("replaced")  # damaged files, of which a resume had whole ones
given = _in_task("given.json")  # what the task got from the chief, see outputs/listing.py
peers = _in_task("peers")  # the addresses from which other hosts may connect
source_ports = _in_task("source-ports")
work = _in_task(WORK)  # its own directory: no name in it is tfdeploy's


def held(folder: str, kind: str) -> str:
    """Return where files of a task's folder, or of a run's, are held; see outputs/held.py."""
    return os.path.join(folder, HELD, kind)


def resuming(run_dir: str) -> str:
    """Return the file whose mtime says when the run's last resume began."""
    return os.path.join(run_dir, RESUMING)


def changing(project: str, run_id: str) -> str:
    """Return the file that a controller has locked while it changes the run; see
    runs/change_lock.py."""
    return os.path.join(run(project, run_id), CHANGING)


def incoming_for(folder: str, kind: str) -> str:
    """Return where files arrive for a task's folder, or a run's, until they are complete."""
    return os.path.join(folder, INCOMING + kind)


def checkpoints(task_dir: str, checkpoint_dir: str) -> str:
    """Return where a task saves checkpoints: `checkpoint_dir`, relative to its work directory."""
    return os.path.join(work(task_dir), checkpoint_dir)


def is_own(run_dir: str, path: str) -> bool:
    """Return whether a path below a run's folder is one that tfdeploy itself writes. Pure.

    Everything else there was written by a task: in its work directory, or beside it (`../a.npz`).
    """
    first, *rest = os.path.relpath(path, run_dir).split(os.sep)
    while rest and rest[-1].endswith(filesystem.FOUND):
        rest[-1] = rest[-1][: -len(filesystem.FOUND)]
    if first == LOGS and rest:
        stem, extension = os.path.splitext(rest[0])
        name = stem if extension in OTHER_LOGS else rest[0]
        return len(rest) == 1 and name.endswith(tuple(_OWN_IN_LOGS))
    is_task = bool(rest) and first not in _OWN_IN_RUN and not first.startswith(INCOMING)
    name, own = (rest[0], _OWN_IN_TASK - {WORK}) if is_task else (first, _OWN_IN_RUN)
    return name in own or name.startswith(INCOMING)
