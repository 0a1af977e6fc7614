"""Which checkpoints in a worker's directory are copies of the chief's (replication/backups.py).

They are no outputs of the worker: the chief's host has them.
"""

from __future__ import annotations

import os

from ...shared import TYPE_CHECKING, records, state_file
from .. import paths

if TYPE_CHECKING:
    from typing import Dict, Tuple

    Files = Dict[str, Tuple[int, int]]  # the size and the mtime in ns of each path


def load(task_dir: str) -> Files:
    """Return what was given to a task, by its path in the task's directory."""
    try:
        stored = records.read(paths.given(task_dir))
        return {path: (int(size), int(mtime_ns)) for path, (size, mtime_ns) in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def store(task_dir: str, files: Files) -> None:
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
