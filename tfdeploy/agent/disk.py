"""The verb `disk`: what a project holds on this host, and how much room that takes."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field

from . import TYPE_CHECKING, lock, paths, records, status

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

REMOVING = ".removing-"  # what begins so is half removed, and shows as nothing else
BLOCK = 512  # st_blocks counts these, whatever the filesystem's own are (stat(2))
STARTING_S = 60.0
RESUMING, RESUMING_S = ".resuming", 3600.0
FORGOTTEN_S = 86400.0


@dataclass(frozen=True)
class HeldRun:
    """A run's part on this host. `chief` is the run's, wherever it is; `live`: a supervisor lives
    here, or is about to; `tasks` maps each to its state; `age_s` is how long ago the last of them
    was launched, by this host's clock; `bytes` is what it takes on the disk; `data` are the
    releases of the data sets that its tasks here see."""

    run: str
    release: str
    chief: str
    live: bool
    tasks: Dict[str, str]
    age_s: float
    bytes: int
    data: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class HeldRelease:
    """A release on this host; `age_s` is how long ago it was pushed."""

    release: str
    age_s: float
    bytes: int


def disk(project: str) -> Dict[str, Any]:
    """Answers `{runs: [HeldRun], releases: [HeldRelease], left_bytes, free_bytes, total_bytes}`.

    `left_bytes` is what broken removals left, and broken pushes that nobody took up for a day.
    `free_bytes` is what this user may still write where the project lies.
    """
    home = os.path.dirname(runs_dir(project))
    room = os.statvfs(home if os.path.isdir(home) else paths.root())
    return {
        "runs": _held(_held_run, project, runs_dir(project)),
        "releases": _held(_held_release, project, paths.releases(project)),
        "left_bytes": sum(usage(path) for path in leftovers(project)),
        "free_bytes": room.f_bavail * room.f_frsize,
        "total_bytes": room.f_blocks * room.f_frsize,
    }


def usage(path: str) -> int:
    """The bytes that a tree takes on the disk: links not followed, holes not counted. Of a file
    with several names, as releases share them, each name has its part."""
    return sum(
        info.st_blocks * BLOCK // (1 if stat.S_ISDIR(info.st_mode) else info.st_nlink)
        for info in _infos(path)
    )


def freed(paths: Iterable[str]) -> int:
    """The bytes that become free when all of these go: none of a file with a name elsewhere."""
    total = 0
    names: Dict[Tuple[int, int], int] = {}
    for info in (info for path in paths for info in _infos(path)):
        file = (info.st_dev, info.st_ino)
        names[file] = names.get(file, 0) + 1
        if stat.S_ISDIR(info.st_mode) or names[file] == info.st_nlink:
            total += info.st_blocks * BLOCK
    return total


def _infos(path: str) -> Iterator[os.stat_result]:
    """Of all that is in a tree, itself too; not of what vanishes meanwhile."""
    left = [path]
    while left:
        each = left.pop()
        try:
            info = os.lstat(each)
        except OSError:
            continue
        if stat.S_ISDIR(info.st_mode):
            left += [entry.path for entry in _entries(each)]
        yield info


def _held(look: Callable[[str, str], Any], project: str, folder: str) -> List[Dict[str, Any]]:
    """What `look` sees in each visible folder; one that is removed meanwhile is left out."""
    found = []
    for name in sorted(visible(folder)):
        try:
            if stat.S_ISDIR(os.lstat(os.path.join(folder, name)).st_mode):
                found.append(records.to_json(look(project, name)))
        except FileNotFoundError:
            continue
    return found


def _held_run(project: str, run: str) -> HeldRun:
    folder = paths.run(project, run)
    tasks = task_dirs(project, run)
    launches = sorted((os.stat(paths.launch(each)).st_mtime, each) for each in tasks.values())
    launched, youngest = launches[-1] if launches else (os.stat(folder).st_mtime, "")
    return HeldRun(
        run=run,
        release=next(iter(releases_of(youngest)), ""),
        chief=_chief_of(youngest),
        live=is_kept(folder) or any(is_live(each) for each in tasks.values()),
        tasks={task: state_of(each) for task, each in tasks.items()},
        age_s=_since_s(launched),
        bytes=usage(folder),
        data=sorted({name for each in tasks.values() for name in releases_of(each)[1:]}),
    )


def _held_release(project: str, name: str) -> HeldRelease:
    path = paths.release(project, name)
    return HeldRelease(name, _since_s(os.stat(path).st_ctime), usage(path))


def state_of(task_dir: str) -> str:
    try:
        return status.read_state(task_dir).state
    except PermissionError:  # the lock is another user's: nobody here can tell
        return records.LOST


def is_live(task_dir: str) -> bool:
    """A task that is just being started has no lock yet; where it can't be told, it may be live."""
    try:
        if lock.holder(task_dir) is not None:
            return True
        is_young = _since_s(os.stat(paths.launch(task_dir)).st_mtime) < STARTING_S
        return is_young and not os.path.exists(paths.state(task_dir))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def keep(project: str, run: str) -> None:
    """The run is being resumed, which may take long while none of its tasks lives: it stays."""
    folder = paths.run(project, run)
    if os.path.isdir(folder):
        with open(os.path.join(folder, RESUMING), "w", encoding="utf-8"):
            pass


def is_kept(run_dir: str) -> bool:
    try:
        return _since_s(os.stat(os.path.join(run_dir, RESUMING)).st_mtime) < RESUMING_S
    except OSError:
        return False


def releases_of(task_dir: str) -> List[str]:
    """What its launch names: the code's release, then those of its data; none where that can't be
    read."""
    try:
        found = records.read(paths.launch(task_dir))
        return [found["release"], *found.get("data", {}).values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def leftovers(project: str) -> Iterator[str]:
    """What broken removals left, and broken pushes that nobody took up for a day."""
    pushing = os.path.basename(paths.incoming(project, ""))
    for folder in (runs_dir(project), paths.releases(project)):
        for entry in _entries(folder):
            if _is_left(entry, pushing):
                yield entry.path


def runs_dir(project: str) -> str:
    return os.path.join(paths.root(), project, "runs")


def task_dirs(project: str, run: str) -> Dict[str, str]:
    """The directory of each task that is here; a run that is being removed may have none left."""
    try:
        return {task: paths.task(project, run, task) for task in paths.tasks(project, run)}
    except FileNotFoundError:
        return {}


def visible(folder: str) -> List[str]:
    return [entry.name for entry in _entries(folder) if not entry.name.startswith(".")]


def _is_left(entry: "os.DirEntry[str]", pushing: str) -> bool:
    try:
        is_folder, changed = entry.is_dir(follow_symlinks=False), os.lstat(entry.path).st_ctime
    except OSError:
        return False
    is_old_push = entry.name.startswith(pushing) and _since_s(changed) > FORGOTTEN_S
    return is_folder and (is_old_push or entry.name.startswith(REMOVING))


def _entries(folder: str) -> List["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _chief_of(task_dir: str) -> str:
    """Its run's, or "" where an older agent wrote none."""
    try:
        return str(records.read(paths.launch(task_dir))["circle"]["chief"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _since_s(moment: float) -> float:
    """By this host's clock, which may have been set back meanwhile."""
    return max(0.0, time.time() - moment)
