"""Keep a task's files as they are while they are verified and fetched, outside of its own folders.

<task>/held/<kind>/ has a name for each file: a copy, or a link. A program lists its folders and
compares the times of its files, so nothing is written there, and no file gets a hard link, which
changes its ctime. Instead this process keeps files open: they are then /proc/<pid>/fd/<descriptor>
for all processes of this user, also after the task has deleted or replaced them (proc(5)).

They are released on request, or when this process exits, because its connection was lost.
"""

from __future__ import annotations

import atexit
import os
import resource
from contextlib import suppress
from typing import Dict, List, Mapping, Tuple

from ...shared import filesystem

# The open files of each folder, and before them the folder itself.
_held: Dict[str, List[int]] = {}
_usual_limit: List[Tuple[int, int]] = []


def begin(folder: str) -> None:
    """Begin to hold files in `folder`, and release what was held there."""
    release(folder)
    _held[folder] = []
    _raise_limit()


def add(folder: str, files: Mapping[str, int]) -> None:
    """Show open files in `folder`, by name; they stay open until `release`. Raises OSError."""
    held = _held[folder]
    is_new = not held
    held += files.values()
    if is_new:
        os.makedirs(folder, mode=0o700)
        held.insert(0, os.open(folder, os.O_RDONLY))
    for name, descriptor in files.items():
        os.symlink("/proc/{}/fd/{}".format(os.getpid(), descriptor), os.path.join(folder, name))


def has(folder: str) -> bool:
    """Return whether this process holds files in `folder`: the links in it are its own."""
    return folder in _held


def release(folder: str) -> None:
    """Close the files that are held in `folder`, and delete it with what only holds needed."""
    for descriptor in _held.pop(folder, ()):
        os.close(descriptor)
    filesystem.remove_folder(folder)
    parent = os.path.dirname(folder)
    with suppress(OSError):  # the first one that is not empty
        for _ in range(3):  # held/, the task's and the run's
            os.rmdir(parent)
            parent = os.path.dirname(parent)
    if not _held:
        _restore_limit()


@atexit.register
def release_all() -> None:
    """Release everything, except a folder in which another agent holds files since the connection
    to this one was lost."""
    for folder, held in list(_held.items()):
        with suppress(OSError):
            if held and os.path.samestat(os.fstat(held[0]), os.stat(folder)):
                release(folder)
        for descriptor in _held.pop(folder, ()):
            os.close(descriptor)
    _restore_limit()


def _raise_limit() -> None:
    """Let this process have all the open files that it may: many checkpoints have many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # more than the kernel's own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _usual_limit[:] = [(soft, hard)]


def _restore_limit() -> None:
    """Restore the limit: this process may start tasks, which inherit it."""
    for limit in _usual_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    _usual_limit.clear()
