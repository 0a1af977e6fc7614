"""Complete checkpoints of a folder: find new ones, and open them while TensorFlow deletes old ones.

TensorFlow writes the data, the index and then the state file `checkpoint`, and deletes old
checkpoints as it continues (max_to_keep). So the state file is read first, and only complete
checkpoints are opened; one that is deleted meanwhile is skipped. What is open can be read to its
end: TensorFlow replaces files, and writes into none.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import Dict, Iterator, List, Optional, Tuple

from ...shared import filesystem, state_file
from ...shared.filesystem import stamp
from ...shared.protocol.outputs import HashedFile, HeldUnit
from .. import paths
from ..machine import stored

MAX_TRIES = 100


class OpenCheckpoint:
    """A complete checkpoint that this process keeps open; `files` has the descriptor of each file
    by its name."""

    def __init__(self, name: str, files: Dict[str, int]) -> None:
        self.name, self.files = name, files

    def describe(self) -> HeldUnit:
        """Return it before it is read: without the hashes of its files."""
        sizes = {file: os.fstat(descriptor).st_size for file, descriptor in self.files.items()}
        files = [HashedFile(file, size, "") for file, size in sizes.items()]
        return HeldUnit(self.name, files, state_file.step(self.name))

    def is_newest_in(self, folder: str) -> bool:
        """Return whether these files still are the newest checkpoint of `folder`."""
        return (
            state_file.read(folder)[:1] == [self.name]
            and _files_of(folder, self.name) == [*self.files]
            and all(stamp(os.path.join(folder, f)) == stamp(fd) for f, fd in self.files.items())
        )

    def close(self) -> None:
        for descriptor in self.files.values():
            os.close(descriptor)


def open_complete(folder: str, every: bool) -> List[OpenCheckpoint]:
    """Open the newest complete checkpoint of `folder` (or `every` one), the newest first.

    A checkpoint that the state file names may be deleted before it is open: then the state file
    has changed and is read again. Raises OSError if this process can open no more files.
    """
    for _ in range(MAX_TRIES):
        names = state_file.read(folder)
        complete = _open_each(folder, names)
        found = list(complete if every else islice(complete, 1))
        if found or names == state_file.read(folder):
            return found
    return []


class CheckpointWatch:
    """Finds a task's new checkpoints by the time and size of its state file.

    One is reported when it has the same files in two polls, or when the task has ended: TensorFlow
    1 writes the .meta file after the state file. Source: tensorflow/python/training/saver.py,
    Saver.save.
    """

    def __init__(self, project: str, run: str, task: str) -> None:
        self._folder = _checkpoint_dir(project, run, task)
        self._stamp: Tuple[int, ...] = ()
        self._newest = ""
        self._seen: Tuple[str, List[str]] = ("", [])

    def poll(self, has_ended: bool = False) -> List[str]:
        """Return the name of the newest checkpoint, if it is new and complete; else []."""
        found = stamp(os.path.join(self._folder, state_file.STATE))
        if found in ((), self._stamp):
            return []
        newest = state_file.read(self._folder)[:1]
        files = _files_of(self._folder, newest[0]) if newest else None
        if files is None:
            return []
        before, self._seen = self._seen, (newest[0], files)
        if before != self._seen and not has_ended:
            return []
        self._stamp = found
        if newest[0] == self._newest:
            return []
        self._newest = newest[0]
        return newest


def _checkpoint_dir(project: str, run: str, task: str) -> str:
    task_dir = paths.task(project, run, task)
    launch = stored.launch(task_dir)
    return paths.checkpoints(task_dir, launch.directory.checkpoint_dir)


def _open_each(folder: str, names: List[str]) -> Iterator[OpenCheckpoint]:
    for name in names:
        checkpoint = _open_checkpoint(folder, name)
        # TensorFlow updates the state file before it deletes a checkpoint: one that the file still
        # names was complete.
        if checkpoint and name in state_file.read(folder):
            yield checkpoint
        elif checkpoint:
            checkpoint.close()


def _open_checkpoint(folder: str, name: str) -> Optional[OpenCheckpoint]:
    """Open one checkpoint; return None if it is incomplete or was deleted meanwhile."""
    checkpoint = OpenCheckpoint(name, {})
    for file in _files_of(folder, name) or []:
        try:
            checkpoint.files[file] = filesystem.open_regular(os.path.join(folder, file))
        except OSError as error:
            checkpoint.close()
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None
    return checkpoint if checkpoint.files else None


def _files_of(folder: str, name: str) -> Optional[List[str]]:
    try:
        return state_file.file_set(os.listdir(folder), name)
    except OSError:
        return None
