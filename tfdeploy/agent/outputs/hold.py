"""The verbs `hold` and `let_go`: keep outputs unchanged while they are verified and fetched.

A running task may write to a file at any time, so files are copied, and copied again if they
changed meanwhile. After the task has ended, links are enough: if a file still changes, it arrives
with another hash.
"""

from __future__ import annotations

import os
import time

from ...shared import TYPE_CHECKING, filesystem, hashing, parallel
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import (
    HELD_OUTPUTS,
    BadUnit,
    HashedFile,
    HeldUnit,
    HeldUnits,
    UnitToHold,
)
from .. import paths
from ..machine import lock
from . import held, integrity

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

MAX_TRIES = 4
PAUSE_S = 0.5


def hold(project: str, run: str, task: str, units: List[UnitToHold]) -> HeldUnits:
    """Copy or link units that `outputs` or `find` answered."""
    task_dir = paths.task(project, run, task)
    work, held_dir = paths.work(task_dir), os.path.join(task_dir, HELD_OUTPUTS)
    held.begin(held_dir)
    try:
        held.add(held_dir, {})
    except OSError as error:  # a full disk: checkpoints can still be fetched
        why = "it can't be copied for the transfer: {}".format(error.strerror)
        return HeldUnits(held_dir, [], [BadUnit(unit.path, why) for unit in units])
    errors = _take_until_stable(work, held_dir, units, lock.is_live(task_dir))
    return HeldUnits(
        pin=held_dir,
        held=[_describe(held_dir, unit) for unit in units if not errors[unit.path]],
        bad=[BadUnit(path, error) for path, error in errors.items() if error],
    )


def let_go(project: str, run: str, task: str) -> Done:
    """Delete what `hold` has copied and linked."""
    held.release(os.path.join(paths.task(project, run, task), HELD_OUTPUTS))
    return Done()


def relative_path(path: str) -> str:
    """Return where a task's file, which may have an absolute path, is stored below a folder."""
    return path.lstrip("/")


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
        UnitToHold(relative_path(unit.path), unit.kind, unit.files)
        for unit in units
        if not errors[unit.path]
    ]
    broken = integrity.find_errors(held_dir, taken)
    return {path: error or broken.get(relative_path(path), "") for path, error in errors.items()}


def _take_unit(work: str, held_dir: str, unit: UnitToHold, is_live: bool) -> str:
    """Copy or link the files of one unit. Return the error, "" if there is none."""
    before = _stamps(work, unit)
    try:
        for path in unit.files:
            source, target = os.path.join(work, path), os.path.join(held_dir, relative_path(path))
            _take_file(source, target, is_live)
    except FileNotFoundError:
        return "it was removed meanwhile"
    except OSError as error:
        return str(error.strerror)
    return "" if before == _stamps(work, unit) else "it changes while it is read"


def _take_file(source: str, target: str, is_live: bool) -> None:
    import shutil  # as in filesystem.remove_folder

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


def _stamps(work: str, unit: UnitToHold) -> List[Optional[Tuple[int, int, int]]]:
    return [_stamp(os.path.join(work, path)) for path in unit.files]


def _stamp(path: str) -> Optional[Tuple[int, int, int]]:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_size, info.st_mtime_ns, info.st_ino


def _describe(held_dir: str, unit: UnitToHold) -> HeldUnit:
    def describe_file(path: str) -> HashedFile:
        relative = relative_path(path)
        file = os.path.join(held_dir, relative)
        return HashedFile(relative, os.path.getsize(file), hashing.sha256(file))

    return HeldUnit(unit.path, parallel.each(describe_file, unit.files, hashing.THREADS))
