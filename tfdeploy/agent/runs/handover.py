"""The verbs `newest`, `unhold`, `receive`, `adopt`: give a checkpoint to a resumed run's chief.

A run that is resumed on other hosts starts from the newest checkpoint that can be found: of its
chief, of a replica, or one on the controller.
"""

from __future__ import annotations

import os
import shutil

from .. import TYPE_CHECKING, paths
from ..machine import filesystem
from ..outputs import checkpoints
from ..protocol.message import Done
from ..protocol.outputs import Arrival, CheckpointCopy
from ..protocol.runs import CheckpointCopies
from ..supervision.replication import replicas
from . import disk

if TYPE_CHECKING:
    from typing import List

PIN = ".tfdeploy-copy-" + os.uname().nodename  # hosts may share the folder
INCOMING = ".tfdeploy-incoming"


def newest(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> CheckpointCopies:
    """Pin the newest good checkpoint of each of these tasks, and of the replica on this host, until
    `unhold`."""
    copies: List[CheckpointCopy] = []
    disk.mark_resuming(project, run)
    for folder in _checkpoint_folders(project, run, tasks, checkpoint_dir):
        pin_dir = os.path.join(folder, PIN)
        if os.path.isdir(folder):
            good, _ = checkpoints.pin_good(folder, pin_dir, every=False)
            copies += [CheckpointCopy(**vars(checkpoint), folder=pin_dir) for checkpoint in good]
    return CheckpointCopies(copies)


def unhold(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Done:
    """Delete the links that `newest` made."""
    for folder in _checkpoint_folders(project, run, tasks, checkpoint_dir):
        filesystem.remove_folder(os.path.join(folder, PIN))
    return Done()


def receive(project: str, run: str, task: str, checkpoint_dir: str) -> Arrival:
    """Make an empty folder to which a checkpoint for `task` can be sent."""
    paths.make_private(project)
    incoming = os.path.join(_folder(project, run, task, checkpoint_dir), INCOMING)
    filesystem.remove_folder(incoming)
    os.makedirs(incoming)
    return Arrival(incoming)


def adopt(project: str, run: str, task: str, checkpoint_dir: str, name: str, source: str) -> Done:
    """Make the checkpoint `name` the newest one of `task`.

    `source` is another folder of this host that has it; "" if it was sent to the folder that
    `receive` answered.
    """
    folder = _folder(project, run, task, checkpoint_dir)
    incoming = os.path.join(folder, INCOMING)
    if source:
        filesystem.remove_folder(incoming)
        shutil.copytree(source, incoming, copy_function=filesystem.link_or_copy)
    checkpoints.install(incoming, folder, name)
    filesystem.remove_folder(incoming)
    return Done()


def _checkpoint_folders(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> List[str]:
    folders = [_folder(project, run, task, checkpoint_dir) for task in tasks]
    return list(dict.fromkeys([*folders, replicas.replica_dir(project, run)]))


def _folder(project: str, run: str, task: str, checkpoint_dir: str) -> str:
    return paths.checkpoints(paths.task(project, run, task), checkpoint_dir)
