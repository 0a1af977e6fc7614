"""The verbs `newest`, `unhold`, `receive`, `adopt`: give a checkpoint to a resumed run's chief.

A run that is resumed on other hosts starts from the newest checkpoint that can be found: of its
chief, of a replica, or one on the controller.
"""

from __future__ import annotations

import os
import shutil

from ...shared import TYPE_CHECKING, filesystem
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import Arrival, CheckpointCopy
from ...shared.protocol.runs import CheckpointCopies
from .. import paths
from ..outputs import checkpoints, held
from ..supervision.replication import replicas
from . import disk

if TYPE_CHECKING:
    from typing import Dict, List

HELD = "copies"


def newest(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> CheckpointCopies:
    """Hold the newest good checkpoint of each of these tasks, and of the replica on this host,
    until `unhold`."""
    copies: List[CheckpointCopy] = []
    disk.mark_resuming(project, run)
    for folder, held_dir in _folders(project, run, tasks, checkpoint_dir).items():
        if os.path.isdir(folder):
            paths.make_private(project)
            verified = paths.verified(project, run)
            good = checkpoints.hold_newest_good(folder, held_dir, verified)
            copies += [CheckpointCopy(**vars(checkpoint), folder=held_dir) for checkpoint in good]
    return CheckpointCopies(copies)


def unhold(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Done:
    """Release what `newest` holds."""
    for held_dir in _folders(project, run, tasks, checkpoint_dir).values():
        held.release(held_dir)
    return Done()


def receive(project: str, run: str, task: str, checkpoint_dir: str) -> Arrival:
    """Make an empty folder to which a checkpoint for `task` can be sent."""
    paths.make_private(project)
    return Arrival(_empty_incoming(project, run, task))


def adopt(project: str, run: str, task: str, checkpoint_dir: str, name: str, source: str) -> Done:
    """Make the checkpoint `name` the newest one of `task`.

    `source` is another folder of this host that has it; "" if it was sent to the folder that
    `receive` answered.
    """
    folder, incoming = _folder(project, run, task, checkpoint_dir), _incoming(project, run, task)
    if source:
        _empty_incoming(project, run, task)
        for file in os.listdir(source):
            if not _is_same_file(os.path.join(source, file), os.path.join(folder, file)):
                shutil.copy2(os.path.join(source, file), incoming)
    checkpoints.install(incoming, folder, name)
    filesystem.remove_folder(incoming)
    return Done()


def _folders(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Dict[str, str]:
    """Return each folder of checkpoints, and where those of it are held."""
    owners = {_folder(project, run, t, checkpoint_dir): paths.task(project, run, t) for t in tasks}
    owners[replicas.replica_dir(project, run)] = paths.run(project, run)
    return {folder: paths.held(owner, HELD) for folder, owner in owners.items()}


def _folder(project: str, run: str, task: str, checkpoint_dir: str) -> str:
    return paths.checkpoints(paths.task(project, run, task), checkpoint_dir)


def _incoming(project: str, run: str, task: str) -> str:
    return paths.incoming_for(paths.task(project, run, task), "checkpoint")


def _empty_incoming(project: str, run: str, task: str) -> str:
    incoming = _incoming(project, run, task)
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    return incoming


def _is_same_file(one: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(one, other)
