"""Where a task's program saved outside of its directory, as its own process recorded it.

inside/tfdeploy_saves.py records it. These files are not fetched: the controller names them.
"""

from __future__ import annotations

import os

from .. import TYPE_CHECKING, paths, records
from ..protocol.outputs import SavedPath

if TYPE_CHECKING:
    from typing import List

    from ..records import Launch

MAX_PATHS = 4


def saved_elsewhere(task_dir: str, launch: Launch) -> List[SavedPath]:
    """Return the last few paths, newest first, that no folder of the launch contains.

    Several files of one folder are reported as that folder. An empty folder does not exist.
    """
    folders = [path for path in (*launch.outputs.folders, launch.checkpoint_dir) if path[:1] == "/"]
    roots = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
    saved = [path for path in _recorded(task_dir) if not os.path.join(path, "").startswith(roots)]
    parents = [os.path.dirname(path) for path in saved if os.path.isfile(path)]
    merged = [_parent_of_several(path, parents) for path in saved]
    newest = list(dict.fromkeys(reversed(merged)))[:MAX_PATHS]
    return [SavedPath(path, _exists(path)) for path in newest]


def _parent_of_several(path: str, parents: List[str]) -> str:
    """Return the folder of a file if other files were saved in it too, otherwise the path."""
    parent = os.path.dirname(path)
    return parent if os.path.isfile(path) and parents.count(parent) > 1 else path


def _recorded(task_dir: str) -> List[str]:
    try:
        return [str(path) for path in records.read(paths.saves(task_dir))]
    except (OSError, ValueError, TypeError):
        return []


def _exists(path: str) -> bool:
    try:
        return os.path.isfile(path) or bool(os.listdir(path))
    except OSError:
        return False
