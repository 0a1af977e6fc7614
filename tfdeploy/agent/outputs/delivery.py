"""The verbs `expect` and `deliver`: give files of an earlier chief to the run's next chief."""

from __future__ import annotations

import os
import shutil

from ...shared import TYPE_CHECKING, filesystem, hashing, parallel
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import Arrival
from ...shared.units import FOLDER, SAVED_MODEL
from .. import paths
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import List, Tuple

    from ...shared.protocol.outputs import DeliveredUnit


def expect(project: str, run: str, task: str) -> Arrival:
    """Make an empty folder to which files for `task` can be sent."""
    paths.make_private(project)
    incoming = _incoming(project, run, task)
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    return Arrival(incoming)


def deliver(project: str, run: str, task: str, units: List[DeliveredUnit]) -> Done:
    """Move what has arrived to its places, each unit at once. Raises Refusal, before anything is
    moved, if a hash differs."""
    incoming = _incoming(project, run, task)
    files = [file for unit in units for file in unit.files]

    def check(file: Tuple[str, str]) -> None:
        path, sha256 = file
        if hashing.sha256(os.path.join(incoming, path)) != sha256:
            raise Refusal("{} arrived with other content".format(path), "resume again")

    parallel.each(check, files, hashing.THREADS)
    for unit in units:
        names = [name for name, _ in unit.files]
        install_unit(
            incoming, paths.work(paths.task(project, run, task)), unit.path, unit.kind, names
        )
    filesystem.remove_folder(incoming)
    return Done()


def install_unit(incoming: str, work: str, path: str, kind: str, files: List[str]) -> None:
    """Move a unit, whose `files` are in `incoming`, to its place `path`: a folder in one step; of a
    checkpoint the index last."""
    if kind in (FOLDER, SAVED_MODEL):
        moves = [(path.lstrip("/"), path)]
    else:
        base = "/" if path.startswith("/") else ""
        names = sorted(files, key=lambda name: name.endswith(".index"))
        moves = [(name, base + name) for name in names]
    for name, place in moves:
        target = os.path.join(work, place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(target) and not os.path.islink(target):
            filesystem.remove_folder(target)
        shutil.move(os.path.join(incoming, name), target)


def _incoming(project: str, run: str, task: str) -> str:
    return paths.incoming_for(paths.task(project, run, task), "outputs")
