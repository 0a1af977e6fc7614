"""Hold what a task wrote, so that it can be fetched unchanged, until `end_hold`.

`hold` holds the checkpoints of a task, or other outputs; `hold_copies` the checkpoints that a
resumed run could continue from. held.py says how.

TensorFlow replaces a checkpoint's files, and writes into none: what is open can be read to its end.
It reads checkpoints to find bad ones. A running task may write to any other file at any time, so
these are copied, and copied again if they changed meanwhile. After the task has ended, links are
enough: if a file still changes, it arrives with another hash.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from typing import Dict, List, Optional, Tuple

from ...shared import filesystem, parallel
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import (
    BadUnit,
    HashedFile,
    Held,
    HeldCopies,
    HeldUnit,
    Unit,
)
from .. import paths
from ..machine import lock, stored
from . import checkpoints, held, integrity, verify

MAX_TRIES = 4
PAUSE_S = 0.5
MAX_NAMES = 6


def hold(project: str, run: str, task: str, units: Optional[List[Unit]], every: bool) -> Held:
    """Hold these units, which `outputs` or `find` answered; without `units` the newest good
    checkpoint (or `every` one).

    All fields are empty for a task that was never started. Raises FileNotFoundError if the run is
    deleted meanwhile.
    """
    task_dir = paths.task(project, run, task)
    if units is not None:
        return _hold_units(task_dir, units)
    if task not in paths.tasks(project, run):
        return Held("", [], [])
    launch = stored.launch(task_dir)
    folder = paths.checkpoints(task_dir, launch.directory.checkpoint_dir)
    held_dir = paths.held(task_dir, "checkpoints")
    return _hold_checkpoints(folder, held_dir, paths.verified(project, run), every)


def hold_copies(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> HeldCopies:
    """Hold the newest good checkpoint of each of these tasks, and of the replica on this host."""
    _mark_resuming(project, run)
    task_dirs = [paths.task(project, run, task) for task in tasks]
    owners = {paths.checkpoints(owner, checkpoint_dir): owner for owner in task_dirs}
    owners[paths.replica_dir(project, run)] = paths.run(project, run)
    found: List[Held] = []
    for folder, owner in owners.items():
        if os.path.isdir(folder):
            paths.make_private(project)
            held_dir, memory = paths.held(owner, "copies"), paths.verified(project, run)
            found.append(_hold_checkpoints(folder, held_dir, memory, False))
    return HeldCopies(found)


def end_hold(folders: List[str]) -> Done:
    """Close and delete what this agent holds in these folders."""
    for folder in filter(held.has, folders):
        held.release(folder)
    return Done()


def _hold_checkpoints(folder: str, held_dir: str, memory: str, every: bool) -> Held:
    """Hold the newest good checkpoint of a folder, or `every` one. `memory` is the file that says
    which were verified."""
    good, bad = _find_good(folder, held_dir, memory, every)
    return _describe(held_dir, good, bad, source=folder, there=_visible_names(folder))


def _hold_units(task_dir: str, units: List[Unit]) -> Held:
    work, held_dir = paths.work(task_dir), paths.held(task_dir, "outputs")
    inode = os.stat(task_dir).st_ino
    held.begin(held_dir)
    try:
        held.add(held_dir, {})
    except OSError as error:
        if error.errno == errno.EROFS:  # nothing can be fetched
            raise
        # A full disk: checkpoints can still be fetched.
        why = "it can't be copied for the transfer: {}".format(error.strerror)
        return Held(held_dir, [], [BadUnit(unit.path, why) for unit in units])
    errors = _take_until_stable(work, held_dir, units, lock.is_live(task_dir))
    if os.stat(task_dir).st_ino != inode:  # it was made again for what is held
        held.release(held_dir)
        raise FileNotFoundError(task_dir)
    good = [_hash_unit(held_dir, unit) for unit in units if not errors[unit.path]]
    return _describe(held_dir, good, errors)


def _describe(
    held_dir: str,
    units: List[HeldUnit],
    errors: Dict[str, str],
    source: str = "",
    there: Optional[List[str]] = None,
) -> Held:
    names = [file.path for unit in units for file in unit.files]
    times = {name: os.stat(os.path.join(held_dir, name)).st_mtime_ns for name in names}
    bad = [BadUnit(path, error) for path, error in errors.items() if error]
    return Held(held_dir, units, bad, times, source, there)


def format_errors(task_dir: str, units: List[Unit]) -> Dict[str, str]:
    """Return what is wrong with the format of units of a task that has ended, by path."""
    if not units:
        return {}
    held_dir = paths.held(task_dir, "compared")
    held.begin(held_dir)
    try:
        held.add(held_dir, {})
        errors = _take_units(paths.work(task_dir), held_dir, units, False)
        return {path: error for path, error in errors.items() if error}
    finally:
        held.release(held_dir)


def _mark_resuming(project: str, run: str) -> None:
    """Protect a run from removal while it is resumed: for some time none of its tasks runs."""
    folder = paths.run(project, run)
    if os.path.isdir(folder):
        with open(paths.resuming(folder), "w", encoding="utf-8"):
            pass


def _visible_names(folder: str) -> Optional[List[str]]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))[:MAX_NAMES]
    except OSError:
        return None


def _hold_complete(folder: str, held_dir: str, every: bool) -> List[HeldUnit]:
    held.begin(held_dir)
    opened = checkpoints.open_complete(folder, every)
    for checkpoint in opened:
        held.add(held_dir, checkpoint.files)
    return [checkpoint.describe() for checkpoint in opened]


def _find_good(
    folder: str, held_dir: str, memory: str, every: bool
) -> Tuple[List[HeldUnit], Dict[str, str]]:
    """Return the good ones of the complete checkpoints, and the error of each bad one by its
    name. If none is good, all older ones are held until one of them is."""
    bad: Dict[str, str] = {}
    complete = _hold_complete(folder, held_dir, every)
    good = verify.verify_held(held_dir, memory, complete, every, bad)
    if not good:
        older = _hold_complete(folder, held_dir, True)
        untried = [found for found in older if found.path not in bad]
        good = verify.verify_held(held_dir, memory, untried, every, bad)
    return good, bad


def _take_until_stable(
    work: str, held_dir: str, units: List[Unit], is_live: bool
) -> Dict[str, str]:
    """Take the units; retry those of a running task that change. Return the errors by path."""
    errors: Dict[str, str] = {}
    remaining = units
    for _ in range(MAX_TRIES):
        before = {unit.path: _stamps(work, unit) for unit in remaining}
        errors.update(_take_units(work, held_dir, remaining, is_live))
        remaining = [unit for unit in remaining if errors[unit.path] and is_live]
        if remaining:
            time.sleep(PAUSE_S)
        remaining = [unit for unit in remaining if _stamps(work, unit) != before[unit.path]]
        if not remaining:
            break
    return errors


def _take_units(work: str, held_dir: str, units: List[Unit], is_live: bool) -> Dict[str, str]:
    """Take and verify units. Return what is wrong with each by its path, "" if nothing is."""
    errors = {unit.path: _take_unit(work, held_dir, unit, is_live) for unit in units}
    taken = [
        Unit(_relative_path(unit.path), unit.kind, unit.files)
        for unit in units
        if not errors[unit.path]
    ]
    broken = integrity.find_errors(held_dir, taken)
    return {path: error or broken.get(_relative_path(path), "") for path, error in errors.items()}


def _take_unit(work: str, held_dir: str, unit: Unit, is_live: bool) -> str:
    """Copy or link the files of one unit. Return the error, "" if there is none."""
    before = _stamps(work, unit)
    try:
        for path in unit.files:
            source, target = os.path.join(work, path), os.path.join(held_dir, _relative_path(path))
            _take_file(source, target, is_live)
    except FileNotFoundError:
        return "it was removed meanwhile"
    except OSError as error:
        return str(error.strerror)
    return "" if before == _stamps(work, unit) else "it changes while it is read"


def _take_file(source: str, target: str, is_live: bool) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        os.remove(target)
    if is_live and os.path.isfile(source) and not os.path.islink(source):
        try:
            shutil.copy2(source, target)
            return
        except OSError as error:
            if not filesystem.is_disk_full(error):
                raise
            os.remove(target)  # no room for a copy
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    os.symlink(os.path.abspath(source), target)


def _stamps(work: str, unit: Unit) -> List[Tuple[int, ...]]:
    return [filesystem.stamp(os.path.join(work, path)) for path in unit.files]


def _hash_unit(held_dir: str, unit: Unit) -> HeldUnit:
    def hash_file(path: str) -> HashedFile:
        relative = _relative_path(path)
        file = os.path.join(held_dir, relative)
        return HashedFile(relative, os.path.getsize(file), filesystem.sha256(file))

    return HeldUnit(unit.path, parallel.each(hash_file, [*unit.files], filesystem.HASH_THREADS))


def _relative_path(path: str) -> str:
    """Return where a task's file, which may have an absolute path, is stored below a folder."""
    return path.lstrip("/")
