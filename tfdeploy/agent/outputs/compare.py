"""The verb `compare`: find what is damaged of the files that a task, which has ended, wrote.

The controller sends what it has collected of them. A file is whole if it is the collected one, or
if the task has written it since and its format says nothing else. Damage is a file that is gone
from a folder, empty, of another content though of the same time (a failing disk), or changed after
the task had ended, unless its format has checksums and they fit.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional

from ...shared import filesystem, parallel, records, state_file
from ...shared.protocol.outputs import BadUnit, CollectedFile, CollectedUnit, Damaged, Unit
from ...shared.records import ENDED, TaskState
from ...shared.units import SET
from .. import paths
from . import hold, integrity


def compare(project: str, run: str, task: str, units: List[CollectedUnit]) -> Damaged:
    """Return what is damaged, and state files that name a damaged checkpoint as the newest."""
    task_dir = paths.task(project, run, task)
    work, ended_ns = paths.work(task_dir), _ended_ns(task_dir)
    states = [unit for unit in units if _is_state(unit, units)]
    others = [unit for unit in units if unit not in states]
    bad: Dict[str, str] = {}
    changed: List[Unit] = []
    for unit in others:
        doubts = _doubts(work, unit, ended_ns)
        found = next(filter(None, doubts), "")
        if found:
            bad[unit.path] = found
        elif "" in doubts:  # the task has written it since
            there = [file for file in unit.files if _exists(work, file)]
            files = {file.path: (file.size, file.mtime_ns) for file in there}
            changed.append(Unit(unit.path, unit.kind, files))
    bad.update(hold.format_errors(task_dir, changed))
    bad.update({unit.path: _state_error(work, unit.path, bad) for unit in states})
    return Damaged([BadUnit(path, error) for path, error in bad.items() if error])


def _ended_ns(task_dir: str) -> Optional[int]:
    """Return when the task's end was stored, by the clock of its own file system; None if it was
    not."""
    path = paths.state(task_dir)
    try:
        ended = records.load(TaskState, path).state in ENDED
        return os.stat(path).st_mtime_ns if ended else None
    except (OSError, ValueError):
        return None


def _doubts(work: str, unit: CollectedUnit, ended_ns: Optional[int]) -> List[Optional[str]]:
    """Return for each file of a unit why it is damaged; "" if it was written since the collect,
    None if it is as it was collected. A file may be gone only if all others were written since."""
    there = [file for file in unit.files if _exists(work, file)]
    found = parallel.each(
        lambda file: _doubt(os.path.join(work, file.path), unit.kind, file, ended_ns),
        there,
        filesystem.HASH_THREADS,
    )
    gone = [file.path for file in unit.files if file not in there]
    if gone and None in found:
        return ["it has no {} any more".format(os.path.basename(gone[0]))]
    return found


def _exists(work: str, file: CollectedFile) -> bool:
    return os.path.lexists(os.path.join(work, file.path))


def _doubt(path: str, kind: str, file: CollectedFile, ended_ns: Optional[int]) -> Optional[str]:
    try:
        return _doubt_of_content(path, kind, file, ended_ns)
    except OSError as error:  # of a failing disk
        return "it can't be read: {}".format(error.strerror)


def _doubt_of_content(
    path: str, kind: str, file: CollectedFile, ended_ns: Optional[int]
) -> Optional[str]:
    info = os.stat(path)
    size, mtime_ns = info.st_size, info.st_mtime_ns
    is_known = bool(file.sha256)
    if is_known and size == file.size and filesystem.sha256(path) == file.sha256:
        return None
    if is_known and file.size and not size:
        return "it is empty"
    if is_known and mtime_ns == file.mtime_ns:
        return "its content has changed, but not its time"
    # Users may add files of their own, but hardly a checkpoint of TensorFlow.
    is_later = ended_ns is not None and mtime_ns > ended_ns and (is_known or kind == SET)
    if is_later and not path.endswith(integrity.ZIP):
        return "it was changed after the task had ended"
    return ""


def _is_state(unit: CollectedUnit, units: List[CollectedUnit]) -> bool:
    folder, name = os.path.split(unit.path)
    return name == state_file.STATE and any(
        each.kind == SET and os.path.dirname(each.path) == folder for each in units
    )


def _state_error(work: str, path: str, bad: Dict[str, str]) -> str:
    folder = os.path.dirname(path)
    place = os.path.join(work, folder)
    newest = state_file.read(place)[:1]
    if not newest:
        return "it names no checkpoint"
    if os.path.join(folder, newest[0]) in bad:
        return "it names {}, which is damaged".format(newest[0])
    is_complete = state_file.file_set(os.listdir(place), newest[0])
    return "" if is_complete else "it names {}, which is incomplete".format(newest[0])
