"""The verbs `expect` and `deliver`: install what a run's next chief continues from.

Checkpoints, other outputs and replicas are installed by one function. No part of them is ever
visible: a folder appears in one step, and the index of a checkpoint, with which TensorFlow finds
it, last.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import List, Tuple

from ...shared import filesystem, parallel, state_file
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import CHECKPOINT, ArrivalFolder, DeliveredUnit
from ...shared.units import is_folder
from .. import paths
from ..refusal import Refusal


def expect(project: str, run: str, task: str) -> ArrivalFolder:
    """Make an empty folder to which files for `task` can be sent."""
    paths.make_private(project)
    return ArrivalFolder(_empty_incoming(project, run, task))


def deliver(
    project: str,
    run: str,
    task: str,
    units: List[DeliveredUnit],
    folder: str,
    source: str,
    replaced: List[str],
) -> Done:
    """Install units in `folder`, which is relative to the task's directory.

    They have arrived in the folder that `expect` answered, or `source` is another folder of this
    host that holds them. The files `replaced` are moved out of the task's directory. Raises
    Refusal, before anything is installed, if a hash differs.
    """
    place = os.path.join(paths.work(paths.task(project, run, task)), folder)
    if source:
        incoming = _empty_incoming(project, run, task)
        _copy(source, incoming, place, units)
    else:
        incoming = _incoming(project, run, task)
        _verify(incoming, [file for unit in units for file in unit.files])
    _set_aside(paths.task(project, run, task), replaced)
    for unit in units:
        names = [name for name, _ in unit.files if os.path.exists(os.path.join(incoming, name))]
        install(incoming, place, unit.path, unit.kind, names)
    filesystem.remove_folder(incoming)
    return Done()


def install(incoming: str, folder: str, path: str, kind: str, files: List[str]) -> None:
    """Move a unit, whose `files` are in `incoming`, to its place `path` in `folder`. The state file
    of a folder of checkpoints is written last. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    if is_folder(kind):
        _make_room(os.path.join(folder, path))
        shutil.move(os.path.join(incoming, path.lstrip("/")), os.path.join(folder, path))
    else:
        base = os.path.join(folder, "/" if path.startswith("/") else "")
        names = state_file.index_last(files)
        for name in names:
            if name.endswith(state_file.INDEX):  # of an older checkpoint of the same name
                filesystem.remove_file(base + name)
        for name in names:
            _make_room(base + name)
            filesystem.move_file(os.path.join(incoming, name), base + name)
    if kind == CHECKPOINT:
        state_file.write(folder, path)


def _set_aside(task_dir: str, files: List[str]) -> None:
    """Keep damaged files: somebody may save what is in them."""
    for path in files:
        aside = os.path.join(paths.replaced(task_dir), path.lstrip("/"))
        _make_room(aside)
        with suppress(FileNotFoundError):
            filesystem.move_file(os.path.join(paths.work(task_dir), path), aside)


def _make_room(target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(target) and not os.path.islink(target):
        filesystem.remove_folder(target)


def _copy(source: str, incoming: str, place: str, units: List[DeliveredUnit]) -> None:
    """Copy the files of units that are not in their place already."""
    for name in [name for unit in units for name, _ in unit.files]:
        held, target = os.path.join(source, name), os.path.join(place, name)
        if not (os.path.exists(target) and os.path.samefile(held, target)):
            shutil.copy2(held, os.path.join(incoming, name))


def _verify(incoming: str, files: List[Tuple[str, str]]) -> None:
    def check(file: Tuple[str, str]) -> None:
        path, sha256 = file
        if filesystem.sha256(os.path.join(incoming, path)) != sha256:
            raise Refusal("{} arrived with other content".format(path), "resume again")

    parallel.each(check, files, filesystem.HASH_THREADS)


def _incoming(project: str, run: str, task: str) -> str:
    return paths.incoming_for(paths.task(project, run, task), "outputs")


def _empty_incoming(project: str, run: str, task: str) -> str:
    incoming = _incoming(project, run, task)
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    return incoming
