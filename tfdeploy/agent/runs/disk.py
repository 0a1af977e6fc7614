"""The verb `disk`: list a project's runs, releases and environments, and their disk space."""

from __future__ import annotations

import os
import stat
import time
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple, TypeVar

from ...shared import records
from ...shared.protocol.runs import DiskUse, HeldEnvironment, HeldRelease, HeldRun
from ...shared.records import TaskState
from .. import paths
from ..environments import marker
from ..machine import lock, process, stored
from ..reports import status

T = TypeVar("T")


REMOVING = ".removing-"  # the prefix of what is half deleted; it is listed as nothing else
BLOCK = 512  # the unit of st_blocks, independent of the file system's own blocks (stat(2))
RESUMING_S = 3600.0
ABANDONED_AFTER_S = 86400.0


def disk(project: str) -> DiskUse:
    """Measure a project's runs, releases and leftovers, and their file system."""
    project_dir = os.path.dirname(paths.runs(project))
    info = os.statvfs(project_dir if os.path.isdir(project_dir) else paths.root())
    return DiskUse(
        runs=_list_folders(_describe_run, project, paths.runs(project)),
        releases=_list_folders(_describe_release, project, paths.releases(project)),
        environments=_list_folders(_describe_environment, project, paths.environments(project)),
        left_bytes=sum(used_bytes(path) for path in leftovers_of_runs(project)),
        store_left_bytes=sum(used_bytes(path) for path in leftovers_of_store(project)),
        free_bytes=info.f_bavail * info.f_frsize,
        total_bytes=info.f_blocks * info.f_frsize,
    )


def used_bytes(path: str) -> int:
    """Return the disk space of a tree, without what links point to and without holes.

    A file with several hard links counts in part for each: releases share files.
    """
    return sum(
        info.st_blocks * BLOCK // (1 if stat.S_ISDIR(info.st_mode) else info.st_nlink)
        for info in _stat_tree(path)
    )


def leftovers(project: str) -> Iterator[str]:
    """Yield what interrupted removals, pushes and builds left."""
    yield from leftovers_of_runs(project)
    yield from leftovers_of_store(project)


def leftovers_of_runs(project: str) -> Iterator[str]:
    """Yield what interrupted removals left of runs."""
    return (e.path for e in _entries(paths.runs(project)) if _is_being_removed(e))


def leftovers_of_store(project: str) -> Iterator[str]:
    """Yield what interrupted removals left of releases, environments and the installers' cache,
    interrupted pushes that are older than a day, and interrupted builds."""
    incoming = os.path.basename(paths.incoming(project, ""))
    yield from marker.leftovers(project)
    for entry in _entries(paths.releases(project)):
        if _is_being_removed(entry) or _is_old_push(entry, incoming):
            yield entry.path
    yield from (e.path for e in _entries(paths.environments(project)) if _is_being_removed(e))
    cache = REMOVING + os.path.basename(paths.cache())
    yield from (e.path for e in _entries(paths.store()) if e.name.startswith(cache))


def launched(project: str) -> Iterator[Tuple[str, str]]:
    """Yield run and folder of each task, of all hosts that use this host's store."""
    for folder in paths.runs_of_all_hosts(project):
        for run in visible_names(folder):
            for task in _entries(os.path.join(folder, run)):
                if os.path.exists(paths.launch(task.path)):
                    yield run, task.path


def task_state(task_dir: str) -> TaskState:
    try:
        return status.read_state(task_dir)
    except PermissionError:  # the lock belongs to another user
        return records.TaskState(records.LOST, 0.0)


def has_left_processes(project: str, run: str, task: str) -> bool:
    """Return whether processes of a task run whose supervisor is gone without a report."""
    is_lost = task_state(paths.task(project, run, task)).state == records.LOST
    return is_lost and bool(process.task_processes(process.mark(project, run, task)))


def is_resuming(project: str, run: str) -> bool:
    """Return whether a resume looks for checkpoints of the run here, and has launched nothing
    since then."""
    try:
        began_at = os.stat(paths.resuming(paths.run(project, run))).st_mtime
    except OSError:
        return False
    launched_at, _ = _last_launch(task_dirs(project, run).values()) or (0.0, "")
    # Since then the clock may have been set: a resume of the future has not just begun.
    return abs(time.time() - began_at) < RESUMING_S and launched_at <= began_at


def releases_of(task_dir: str) -> List[str]:
    """Return the release of the task's code, then those of its data sets; [] if its launch can't be
    read."""
    launch = stored.launch_if_readable(task_dir)
    return [launch.directory.release, *launch.directory.data.values()] if launch else []


def environment_of(task_dir: str) -> str:
    """Return the environment of a task, "" if it has none or its launch can't be read."""
    launch = stored.launch_if_readable(task_dir)
    return launch.process.environment if launch else ""


def task_dirs(project: str, run: str) -> Dict[str, str]:
    """Return the directory of each task on this host; {} if the run was removed meanwhile."""
    try:
        return {task: paths.task(project, run, task) for task in paths.tasks(project, run)}
    except FileNotFoundError:
        return {}


def visible_names(folder: str) -> List[str]:
    return [entry.name for entry in _entries(folder) if not entry.name.startswith(".")]


def _stat_tree(path: str) -> Iterator[os.stat_result]:
    """Yield the stat results of a tree, including its root; skip what is deleted meanwhile."""
    remaining = [path]
    while remaining:
        current = remaining.pop()
        try:
            info = os.lstat(current)
        except OSError:
            continue
        if stat.S_ISDIR(info.st_mode):
            remaining += [entry.path for entry in _entries(current)]
        yield info


def _list_folders(describe: Callable[[str, str], T], project: str, folder: str) -> List[T]:
    """Describe each visible folder; skip one that is deleted meanwhile."""
    found = []
    for name in sorted(visible_names(folder)):
        try:
            if stat.S_ISDIR(os.lstat(os.path.join(folder, name)).st_mode):
                found.append(describe(project, name))
        except FileNotFoundError:
            continue
    return found


def _describe_run(project: str, run: str) -> HeldRun:
    folder = paths.run(project, run)
    tasks = task_dirs(project, run)
    launched_at, youngest = _last_launch(tasks.values()) or (os.stat(folder).st_mtime, "")
    newest = _launch_name(youngest)
    current = {task: path for task, path in tasks.items() if _launch_name(path) == newest}
    states = {task: task_state(path) for task, path in current.items()}
    launch = stored.launch_if_readable(youngest)
    return HeldRun(
        run=run,
        release=next(iter(releases_of(youngest)), ""),
        chief=launch.heartbeat.chief if launch else "",
        live=is_resuming(project, run) or any(lock.is_live(path) for path in tasks.values()),
        tasks=states,
        age_s=_age_s(launched_at),
        bytes=used_bytes(folder),
        data=sorted({name for path in tasks.values() for name in releases_of(path)[1:]}),
        environments=sorted({environment_of(path) for path in tasks.values()} - {""}),
        launch=newest,
        needed=launch.heartbeat.needed if launch else [],
    )


def last_launch(project: str, run: str) -> str:
    """Return the name of a run's last launch on this host; "" if it can't be read."""
    found = _last_launch(task_dirs(project, run).values())
    return _launch_name(found[1]) if found else ""


def _last_launch(task_dirs: Iterable[str]) -> Optional[Tuple[float, str]]:
    """Return when the task that was launched last was launched, and its folder; another request may
    delete them meanwhile."""
    launches = []
    for path in task_dirs:
        try:
            launches.append((os.stat(paths.launch(path)).st_mtime, path))
        except FileNotFoundError:
            continue
    return max(launches, default=None)


def _describe_release(project: str, name: str) -> HeldRelease:
    path = paths.release(project, name)
    return HeldRelease(name, _age_s(os.stat(path).st_ctime), used_bytes(path))


def _describe_environment(project: str, name: str) -> HeldEnvironment:
    path = paths.environment(project, name)
    if not os.path.exists(marker.file(path)):  # it is being built, or a leftover
        raise FileNotFoundError(path)
    age_s = _age_s(os.stat(marker.file(path)).st_mtime)
    return HeldEnvironment(name, age_s, used_bytes(path), marker.wheels(path))


def _is_being_removed(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.name.startswith(REMOVING) and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_old_push(entry: "os.DirEntry[str]", incoming: str) -> bool:
    try:
        is_folder, changed = entry.is_dir(follow_symlinks=False), os.lstat(entry.path).st_ctime
    except OSError:
        return False
    return is_folder and entry.name.startswith(incoming) and _age_s(changed) > ABANDONED_AFTER_S


def _entries(folder: str) -> List["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _launch_name(task_dir: str) -> str:
    """Return the name of the launch of a task, or "" if it can't be read."""
    launch = stored.launch_if_readable(task_dir)
    return launch.heartbeat.launch_name if launch else ""


def _age_s(moment: float) -> float:
    """Return the seconds since a moment of this host's clock, 0 if the clock was set back."""
    return max(0.0, time.time() - moment)
