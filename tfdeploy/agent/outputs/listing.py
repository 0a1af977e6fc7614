"""The verbs `outputs` and `find`: list what a task wrote, except its log and checkpoints.

Copies of the chief's checkpoints in a worker's directory (replication/backups.py) are no outputs of
the worker: the chief's host has them. Nor are the copies of the release that no task has changed.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ...shared import filesystem, records, state_file
from ...shared.event_records import EVENTS
from ...shared.protocol.outputs import (
    FoundFiles,
    MissingPath,
    SpecialFile,
    TaskOutputs,
    Total,
    Unit,
)
from ...shared.records import ENDED, Launch, TaskState
from ...shared.units import ANY, SET, Walk
from .. import paths
from ..machine import lock, stored
from ..refusal import Refusal
from ..releases import release_files
from .saves import CHECKPOINT, Saves

Files = Dict[str, Tuple[int, int]]  # the size and the mtime in ns of each path


MAX_NAMES = 8
POLL_S = 1.0
PAUSE_FACTOR = 50  # times the duration of a poll: 2% of a core for a large folder


def outputs(project: str, run: str, task: str) -> TaskOutputs:
    """List what a task wrote. All fields are empty for a task that was never started."""
    if task not in paths.tasks(project, run):
        return TaskOutputs(folder="", outputs=[], others=Total(files=0, size=0))
    task_dir = paths.task(project, run, task)
    walk = Walk()
    try:
        launch = stored.launch(task_dir)
    except Refusal as unreadable:
        return _all_outputs(walk, task_dir, unreadable.message)
    wanted, others = _wanted_and_others(walk, task_dir, launch)
    elsewhere, elsewhere_more = Saves(task_dir, launch).elsewhere()
    return TaskOutputs(
        folder=paths.work(task_dir),
        outputs=sorted(wanted, key=lambda unit: -unit.mtime_ns),
        others=Total(
            files=sum(len(unit.files) for unit in others), size=sum(unit.size for unit in others)
        ),
        incomplete=walk.incomplete,
        special=special_files(walk, task_dir, launch),
        deleted=not os.path.isdir(paths.work(task_dir)),
        elsewhere=elsewhere,
        elsewhere_more=elsewhere_more,
    )


def _all_outputs(walk: Walk, task_dir: str, why: str) -> TaskOutputs:
    """List all files of a task of which nobody knows which are wanted."""
    units = walk.units(paths.work(task_dir), "")
    outputs = sorted(units, key=lambda unit: -unit.mtime_ns)
    return TaskOutputs(paths.work(task_dir), outputs, Total(files=0, size=0), incomplete=why)


def _wanted_and_others(walk: Walk, task_dir: str, launch: Launch) -> Tuple[List[Unit], List[Unit]]:
    wanted: List[Unit] = []
    others: List[Unit] = []
    for unit in own_units(walk, task_dir, launch, launch.outputs.folders):
        (wanted if is_wanted(launch, unit) else others).append(unit)
    return wanted, others


class OutputWatch:
    """Finds a task's new outputs. They are new once they are the same in two polls: until then they
    may be partial."""

    def __init__(self, project: str, run: str, task: str) -> None:
        self._task_dir = paths.task(project, run, task)
        self._next_poll = 0.0
        self._previous: Dict[str, Any] = {}
        self._reported: Dict[str, Any] = {}

    def poll(self) -> bool:
        """Return whether there is an output that was not reported with its current files."""
        start = time.monotonic()
        if start < self._next_poll:
            return False
        current = {unit.path: unit.files for unit in self._wanted()}
        previous, self._previous = self._previous, current
        stable = {path: files for path, files in current.items() if previous.get(path) == files}
        is_new = any(self._reported.get(path) != files for path, files in stable.items())
        self._reported.update(stable)
        now = time.monotonic()
        self._next_poll = now + max(POLL_S, PAUSE_FACTOR * (now - start))
        return is_new

    def _wanted(self) -> List[Unit]:
        if not os.path.isdir(self._task_dir):  # it was never started here
            return []
        try:
            launch = stored.launch(self._task_dir)
        except Refusal:
            return []
        return _wanted_and_others(Walk(), self._task_dir, launch)[0]


def find(project: str, run: str, task: str, names: List[str]) -> FoundFiles:
    """Find files and folders; `names` are absolute paths, or relative to the task's directory. Of
    a folder, what is as in the release is not found."""
    task_dir = paths.task(project, run, task)
    work, found, missing = paths.work(task_dir), [], []
    for name in names:
        units = units_at(os.path.join(work, name), _unit_path(work, name))
        if os.path.isdir(os.path.join(work, name)):
            units = _without_release_files(task_dir, units)
        found += units
        if not units:
            missing.append(_missing(name, os.path.join(work, name)))
    return FoundFiles(found, missing)


def units_at(path: str, name: str) -> List[Unit]:
    """Return the files at a path, each as a unit of its own; `name` is its path in units."""
    files = dict(_files(path, name))
    return [Unit(file, ANY, {file: stamp}) for file, stamp in sorted(files.items())]


def _without_release_files(task_dir: str, units: List[Unit]) -> List[Unit]:
    of_release, work = release_files.of_task(task_dir), paths.work(task_dir)
    return [unit for unit in units if not of_release.have_all(work, unit.files)]


def _unit_path(work: str, name: str) -> str:
    """Return the path of a file as units have it: relative if it is in the task's directory."""
    relative = os.path.relpath(os.path.join(work, name), work)
    return os.path.normpath(os.path.join(work, name)) if relative.startswith("..") else relative


def _files(path: str, name: str) -> Iterator[Tuple[str, Tuple[int, int]]]:
    if os.path.isfile(path) and not os.path.islink(path):
        info = os.stat(path)
        yield name, (info.st_size, info.st_mtime_ns)
    elif not os.path.islink(path):
        for unit in Walk().units(path, "" if name == "." else name):
            yield from unit.files.items()


def _missing(name: str, path: str) -> MissingPath:
    link = os.path.realpath(path) if os.path.islink(path) else ""
    is_folder = os.path.isdir(path) and not link
    what = filesystem.kind(path) if os.path.exists(path) and not (link or is_folder) else ""
    return MissingPath(name, _names_beside(path), link, is_folder, what)


def _names_beside(path: str) -> List[str]:
    folders = filter(os.path.isdir, (path, *filesystem.folders_above(path)))
    return sorted(os.listdir(next(folders)))[:MAX_NAMES]


def is_wanted(launch: Launch, unit: Unit) -> bool:
    """Return whether the launch includes any file of a unit."""
    return unit.path.startswith("/") or any(_is_included(launch, path) for path in unit.files)


def _is_included(launch: Launch, path: str) -> bool:
    patterns = launch.outputs.patterns
    matches = [includes for includes, regex in patterns if re.match(regex, path, re.DOTALL)]
    return bool(matches and matches[-1])


def special_files(walk: Walk, task_dir: str, launch: Launch) -> List[SpecialFile]:
    """Return what the walk found and can't be fetched, except links of the release, and links to
    what is listed or stays: the task's own files, its release and its data sets."""
    kept = [paths.work(task_dir), paths.release(launch.project, launch.directory.release)]
    kept += [paths.release(launch.project, release) for release in launch.directory.data.values()]
    roots = tuple(os.path.join(os.path.realpath(folder), "") for folder in kept)
    of_release = release_files.of_launch(launch)
    return [
        SpecialFile(path, filesystem.kind(full_path), os.path.islink(full_path))
        for full_path, path in walk.special
        if path not in launch.directory.links
        and not _is_link_into(roots, full_path)
        and not of_release.has_link(kept[0], path)
    ]


def _is_link_into(roots: Tuple[str, ...], path: str) -> bool:
    is_live_link = os.path.islink(path) and os.path.exists(path)
    return is_live_link and os.path.join(os.path.realpath(path), "").startswith(roots)


def own_units(walk: Walk, task_dir: str, launch: Launch, folders: List[str]) -> Iterator[Unit]:
    """Yield what the task wrote in its directory and in these absolute `folders`, except what is
    collected in another way (the chief's checkpoints and event files), the files that tfdeploy
    wrote, copies of the chief's checkpoints and of the release that are as they were, and what was
    in those folders before the run."""
    has_events = has_collected_events(launch)
    saves = os.path.normpath(launch.directory.checkpoint_dir)
    # Before the names: what is saved meanwhile is newer.
    named_ns = _named_ns(task_dir, saves) if launch.is_chief else None
    sets = state_file.read(paths.checkpoints(task_dir, saves)) if launch.is_chief else []
    saved = Saves(task_dir, launch) if folders else None
    given, work = load_given(task_dir), paths.work(task_dir)
    of_release = release_files.of_launch(launch)
    for unit in all_units(walk, task_dir, folders):
        folder, name = os.path.split(unit.path)
        is_set = os.path.normpath(folder) == saves and (
            _is_held(name, unit.kind, sets)
            or (bool(sets) and _is_being_saved(name, unit, named_ns))
        )
        is_event = has_events and EVENTS in name
        is_older = saved and os.path.isabs(unit.path) and not saved.is_of_run(unit.files)
        is_copy = of_release.have_all(work, unit.files) or (
            given and all(is_given(task_dir, given, *file) for file in unit.files.items())
        )
        if not (is_set or is_event or is_older or is_copy or unit.path in launch.directory.files):
            yield unit


def has_collected_events(launch: Launch) -> bool:
    """Return whether the verb `events` collects the task's event files: those of other tasks are
    outputs like any other, except of slots."""
    return launch.is_chief or launch.job == "evaluator" or bool(launch.trials.points)


def _is_held(name: str, kind: str, sets: List[str]) -> bool:
    """Return whether it is collected as a checkpoint: one of these, or the state file."""
    if kind == SET:
        return name in sets
    return bool(sets) and (
        name == state_file.STATE or any(state_file.is_part(name, checkpoint) for checkpoint in sets)
    )


def _named_ns(task_dir: str, folder: str) -> Optional[int]:
    """Return when a task that runs last named its checkpoints in the state file of `folder`, in ns;
    None if it has ended, or has named none."""
    file = os.path.join(paths.checkpoints(task_dir, folder), state_file.STATE)
    try:
        state = records.load(TaskState, paths.state(task_dir)).state
        runs = state not in ENDED and lock.is_live(task_dir)
        return os.stat(file).st_mtime_ns if runs else None
    except (OSError, ValueError, TypeError):
        return None


def _is_being_saved(name: str, unit: Unit, named_ns: Optional[int]) -> bool:
    """Return whether a live task has written a checkpoint that its state file does not name yet.
    After its end, one that was never named is an output."""
    is_checkpoint = unit.kind == SET or bool(CHECKPOINT.fullmatch(name))
    newest_ns = max(mtime_ns for _, mtime_ns in unit.files.values())
    return is_checkpoint and named_ns is not None and newest_ns > named_ns


def all_units(walk: Walk, task_dir: str, folders: List[str]) -> Iterator[Unit]:
    """Yield all units in a task's directory and in these absolute folders."""
    yield from walk.units(paths.work(task_dir), "")
    for folder in folders:
        folder = os.path.normpath(folder)
        yield from walk.units(folder, folder)


def load_given(task_dir: str) -> Files:
    """Return what was given to a task, by its path in the task's directory."""
    stored = records.read_or_empty(dict, paths.given(task_dir))
    return {path: (size, mtime_ns) for path, (size, mtime_ns) in stored.items()}


def store_given(task_dir: str, files: Files) -> None:
    """Remember what is given to a task. Raises OSError."""
    records.write(paths.given(task_dir), {path: list(stamp) for path, stamp in files.items()})


def is_given(task_dir: str, given: Files, path: str, stamp: Tuple[int, int]) -> bool:
    """Return whether a file still is what was given, or the state file of such a folder, in which
    the task has saved nothing since then."""
    if given.get(path) == stamp:
        return True
    folder, name = os.path.split(path)
    return name == state_file.STATE and names_given(task_dir, given, folder)


def names_given(task_dir: str, given: Files, folder: str) -> bool:
    """Return whether the state file of a folder names a given checkpoint as the newest."""
    newest = state_file.read(os.path.join(paths.work(task_dir), folder))[:1]
    return any(os.path.join(folder, name + ".index") in given for name in newest)
