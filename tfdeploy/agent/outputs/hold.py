"""The verbs that hold what a task wrote, so that it can be fetched unchanged, and that release it.

`pin` holds the checkpoints of a task, `newest` those that a resumed run could continue from, `hold`
other outputs. held.py says how.

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
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from ...shared import filesystem, parallel
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import (
    HELD_OUTPUTS,
    BadUnit,
    CheckpointCopies,
    HashedFile,
    HeldCheckpoint,
    HeldCopy,
    HeldUnit,
    HeldUnits,
    Linked,
    PinAnswer,
    Pinned,
    UnitToHold,
    UnreadableCheckpoint,
)
from .. import paths
from ..machine import lock, stored
from . import checkpoints, held, integrity, verify

MAX_TRIES = 4
PAUSE_S = 0.5
MAX_NAMES = 6


def pin(project: str, run: str, task: str, every: bool) -> Iterator[PinAnswer]:
    """Hold the newest good checkpoint of `task` (or `every` one). Yield what is held, so that it
    can be fetched while it is read and hashed; then what is good.

    `bad` are complete checkpoints that could not be read to their end. All fields are empty for a
    task that was never started.
    """
    if task not in paths.tasks(project, run):
        yield Pinned(checkpoint_dir="", pin="", checkpoints=[], bad=[])
        return
    task_dir = paths.task(project, run, task)
    launch = stored.launch(task_dir)
    folder = paths.checkpoints(task_dir, launch.checkpoint_dir)
    held_dir = paths.held(task_dir, "checkpoints")
    complete = _hold_complete(folder, held_dir, every)
    if complete:
        yield Linked(held_dir, complete)
    good, bad = _find_good(folder, held_dir, paths.verified(project, run), complete, every)
    yield Pinned(
        checkpoint_dir=folder,
        pin=held_dir,
        checkpoints=good,
        bad=[UnreadableCheckpoint(name, error) for name, error in bad.items()],
        there=_visible_names(folder),
        mtimes_ns={
            file.path: os.stat(os.path.join(held_dir, file.path)).st_mtime_ns
            for found in good
            for file in found.files
        },
    )


def unpin(project: str, run: str, task: str) -> Done:
    """Release what `pin` holds."""
    return _release([paths.held(paths.task(project, run, task), "checkpoints")])


def newest(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> CheckpointCopies:
    """Hold the newest good checkpoint of each of these tasks, and of the replica on this host,
    until `unhold`."""
    copies: List[HeldCopy] = []
    bad: Dict[str, str] = {}
    _mark_resuming(project, run)
    for folder, held_dir in _copies(project, run, tasks, checkpoint_dir).items():
        if os.path.isdir(folder):
            paths.make_private(project)
            complete = _hold_complete(folder, held_dir, False)
            memory = paths.verified(project, run)
            good, errors = _find_good(folder, held_dir, memory, complete, False)
            bad.update(errors)
            copies += [HeldCopy(**vars(checkpoint), folder=held_dir) for checkpoint in good]
    return CheckpointCopies(copies, [UnreadableCheckpoint(n, error) for n, error in bad.items()])


def unhold(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Done:
    """Release what `newest` holds."""
    return _release(_copies(project, run, tasks, checkpoint_dir).values())


def hold(project: str, run: str, task: str, units: List[UnitToHold]) -> HeldUnits:
    """Copy or link units that `outputs` or `find` answered. Raises FileNotFoundError if the run is
    deleted meanwhile."""
    task_dir = paths.task(project, run, task)
    work, held_dir = paths.work(task_dir), os.path.join(task_dir, HELD_OUTPUTS)
    inode = os.stat(task_dir).st_ino
    held.begin(held_dir)
    try:
        held.add(held_dir, {})
    except OSError as error:
        if error.errno == errno.EROFS:  # nothing can be fetched
            raise
        # A full disk: checkpoints can still be fetched.
        why = "it can't be copied for the transfer: {}".format(error.strerror)
        return HeldUnits(held_dir, [], [BadUnit(unit.path, why) for unit in units])
    errors = _take_until_stable(work, held_dir, units, lock.is_live(task_dir))
    if os.stat(task_dir).st_ino != inode:  # it was made again for what is held
        held.release(held_dir)
        raise FileNotFoundError(task_dir)
    return HeldUnits(
        pin=held_dir,
        held=[_describe(held_dir, unit) for unit in units if not errors[unit.path]],
        bad=[BadUnit(path, error) for path, error in errors.items() if error],
    )


def format_errors(task_dir: str, units: List[UnitToHold]) -> Dict[str, str]:
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


def let_go(project: str, run: str, task: str) -> Done:
    """Release what `hold` has copied and linked."""
    return _release([os.path.join(paths.task(project, run, task), HELD_OUTPUTS)])


def _release(folders: Iterable[str]) -> Done:
    for folder in folders:
        held.release(folder)
    return Done()


def _copies(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Dict[str, str]:
    """Return each folder that a resumed run could continue from, and where `newest` holds what it
    finds there."""
    task_dirs = [paths.task(project, run, task) for task in tasks]
    owners = {paths.checkpoints(owner, checkpoint_dir): owner for owner in task_dirs}
    owners[paths.replica_dir(project, run)] = paths.run(project, run)
    return {folder: paths.held(owner, "copies") for folder, owner in owners.items()}


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


def _hold_complete(folder: str, held_dir: str, every: bool) -> List[HeldCheckpoint]:
    held.begin(held_dir)
    opened = checkpoints.open_complete(folder, every)
    for checkpoint in opened:
        held.add(held_dir, checkpoint.files)
    return [checkpoint.describe() for checkpoint in opened]


def _find_good(
    folder: str, held_dir: str, memory: str, complete: List[HeldCheckpoint], every: bool
) -> Tuple[List[HeldCheckpoint], Dict[str, str]]:
    """Return the good ones of the `complete` checkpoints, and the error of each bad one by its
    name. If none is good, all older ones are held until one of them is."""
    bad: Dict[str, str] = {}
    good = verify.verify_held(held_dir, memory, complete, every, bad)
    if not good:
        older = _hold_complete(folder, held_dir, True)
        untried = [found for found in older if found.name not in bad]
        good = verify.verify_held(held_dir, memory, untried, every, bad)
    return good, bad


def _take_until_stable(
    work: str, held_dir: str, units: List[UnitToHold], is_live: bool
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


def _take_units(work: str, held_dir: str, units: List[UnitToHold], is_live: bool) -> Dict[str, str]:
    """Take and verify units. Return what is wrong with each by its path, "" if nothing is."""
    errors = {unit.path: _take_unit(work, held_dir, unit, is_live) for unit in units}
    taken = [
        UnitToHold(_relative_path(unit.path), unit.kind, unit.files)
        for unit in units
        if not errors[unit.path]
    ]
    broken = integrity.find_errors(held_dir, taken)
    return {path: error or broken.get(_relative_path(path), "") for path, error in errors.items()}


def _take_unit(work: str, held_dir: str, unit: UnitToHold, is_live: bool) -> str:
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


def _stamps(work: str, unit: UnitToHold) -> List[Tuple[int, ...]]:
    return [filesystem.stamp(os.path.join(work, path)) for path in unit.files]


def _describe(held_dir: str, unit: UnitToHold) -> HeldUnit:
    def describe_file(path: str) -> HashedFile:
        relative = _relative_path(path)
        file = os.path.join(held_dir, relative)
        return HashedFile(relative, os.path.getsize(file), filesystem.sha256(file))

    return HeldUnit(unit.path, parallel.each(describe_file, unit.files, filesystem.HASH_THREADS))


def _relative_path(path: str) -> str:
    """Return where a task's file, which may have an absolute path, is stored below a folder."""
    return path.lstrip("/")
