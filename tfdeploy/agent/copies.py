"""Which good checkpoints of a run does this host hold, and how does its chief get another one?

A run that goes on elsewhere begins with the newest that is known: the chief's own, a replica, or
one from home.
"""

from __future__ import annotations

import os
import shutil

from . import TYPE_CHECKING, checkpoints, disk, paths, replicas

if TYPE_CHECKING:
    from typing import Any, Dict, List

PIN = ".tfdeploy-copy-" + os.uname().nodename  # hosts may share the folder
INCOMING = ".tfdeploy-incoming"


def newest(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Dict[str, Any]:
    """The newest good set in each place where these tasks, or a replica, may have left one.

    Answers {"copies": [{folder, name, step, files: [{path, size}]}]}. `folder` holds the files, by
    links, until `unhold`.
    """
    found: List[Dict[str, Any]] = []
    disk.keep(project, run)
    for folder in _places(project, run, tasks, checkpoint_dir):
        pinned = os.path.join(folder, PIN)
        if os.path.isdir(folder):
            good, _ = checkpoints.good(folder, pinned, every=False)
            found += [{**one, "folder": pinned} for one in good]
    return {"copies": found}


def unhold(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> Dict[str, Any]:
    """Let go of what `newest` holds."""
    for folder in _places(project, run, tasks, checkpoint_dir):
        checkpoints.clear(os.path.join(folder, PIN))
    return {}


def receive(project: str, run: str, task: str, checkpoint_dir: str) -> Dict[str, Any]:
    """An empty folder in which a checkpoint for `task` may arrive."""
    paths.make_private(project)
    incoming = os.path.join(_folder(project, run, task, checkpoint_dir), INCOMING)
    checkpoints.clear(incoming)
    os.makedirs(incoming)
    return {"incoming": incoming}


def adopt(
    project: str, run: str, task: str, checkpoint_dir: str, name: str, source: str
) -> Dict[str, Any]:
    """What has arrived becomes the newest checkpoint of `task`; `source` is another folder of this
    host where it lies, "" where it came from afar."""
    folder = _folder(project, run, task, checkpoint_dir)
    incoming = os.path.join(folder, INCOMING)
    if source:
        checkpoints.clear(incoming)
        shutil.copytree(source, incoming, copy_function=checkpoints.link_one)
    checkpoints.install(incoming, folder, name)
    checkpoints.clear(incoming)
    return {}


def _places(project: str, run: str, tasks: List[str], checkpoint_dir: str) -> List[str]:
    folders = [_folder(project, run, task, checkpoint_dir) for task in tasks]
    return list(dict.fromkeys([*folders, replicas.folder(project, run)]))


def _folder(project: str, run: str, task: str, checkpoint_dir: str) -> str:
    return paths.checkpoints(paths.task(project, run, task), checkpoint_dir)
