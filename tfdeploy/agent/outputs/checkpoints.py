"""The verb `pin`: hold a task's complete checkpoints, while they are verified and copied.

TensorFlow writes the data, the index and then the state file `checkpoint`, and deletes old
checkpoints as it continues (max_to_keep). So the state file is read first, and only complete
checkpoints are opened; one that is deleted meanwhile is skipped. What is open can be read to its
end (held.py): TensorFlow replaces files, and writes into none.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing
from itertools import islice, takewhile

from ...shared import TYPE_CHECKING, filesystem, hashing, parallel, records, state_file
from ...shared.protocol.message import Done
from ...shared.protocol.outputs import (
    BadCheckpoint,
    Checkpoint,
    HashedFile,
    Linked,
    PinAnswer,
    Pinned,
)
from ...shared.records import Launch
from .. import paths
from . import held, verify

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

    Found = Dict[str, Any]  # {name, step, files: [{path, size}]}

HELD = "checkpoints"
MAX_TRIES = 100
MAX_NAMES = 6


def pin(project: str, run: str, task: str, every: bool) -> Iterator[PinAnswer]:
    """Hold the newest good checkpoint of `task` (or `every` one). Yield what is held, so that it
    can be fetched while it is read and hashed; then what is good.

    `bad` are complete checkpoints that could not be read to their end. All fields are empty for a
    task that was never started.
    """
    if task not in paths.tasks(project, run):
        yield Pinned(checkpoint_dir="", pin="", checkpoints=[], bad=[])
        return
    task_dir = paths.task(project, run, task)
    launch = records.load(Launch, paths.launch(task_dir))
    folder = paths.checkpoints(task_dir, launch.checkpoint_dir)
    held_dir = paths.held(task_dir, HELD)
    complete = _hold_complete(folder, held_dir, every)
    if complete:
        yield Linked(held_dir, [_without_hashes(found) for found in complete])
    good, bad = _find_good(folder, held_dir, paths.verified(project, run), complete, every)
    yield Pinned(
        checkpoint_dir=folder,
        pin=held_dir,
        checkpoints=good,
        bad=[BadCheckpoint(name, error) for name, error in bad.items()],
        there=_visible_names(folder),
        mtimes_ns={
            file.path: os.stat(os.path.join(held_dir, file.path)).st_mtime_ns
            for found in good
            for file in found.files
        },
    )


def unpin(project: str, run: str, task: str) -> Done:
    """Release what `pin` holds."""
    held.release(paths.held(paths.task(project, run, task), HELD))
    return Done()


def hold_newest_good(folder: str, held_dir: str, verified: str) -> List[Checkpoint]:
    """Hold the newest good checkpoint of `folder` in `held_dir`, and hash it; [] if there is none.

    `verified` is the file that says what was verified before.
    """
    complete = _hold_complete(folder, held_dir, False)
    return _find_good(folder, held_dir, verified, complete, False)[0]


class OpenCheckpoint:
    """A complete checkpoint that this process keeps open; `files` has the descriptor of each file
    by its name."""

    def __init__(self, name: str, files: Dict[str, int]) -> None:
        self.name, self.files = name, files

    def describe(self) -> Found:
        sizes = [{"path": file, "size": os.fstat(self.files[file]).st_size} for file in self.files]
        return {"name": self.name, "step": state_file.step(self.name), "files": sizes}

    def is_newest_in(self, folder: str) -> bool:
        """Return whether these files still are the newest checkpoint of `folder`."""
        return (
            state_file.read(folder)[:1] == [self.name]
            and _files_of(folder, self.name) == [*self.files]
            and all(_stamp(os.path.join(folder, f)) == _stamp(fd) for f, fd in self.files.items())
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


def install(incoming: str, folder: str, name: str) -> List[str]:
    """Move the files of `incoming` into `folder`, as its newest checkpoint `name`.

    Moves the data first, then the index, with which TensorFlow finds the checkpoint, and writes the
    state file last: no part of it is ever visible as a checkpoint. Return the names of all files
    that were written. Raises OSError.
    """
    files = sorted(os.listdir(incoming), key=lambda file: file.endswith(".index"))
    os.makedirs(folder, exist_ok=True)
    for file in files:
        filesystem.move_file(os.path.join(incoming, file), os.path.join(folder, file))
    state_file.write(folder, name)
    return [*files, state_file.STATE]


class CheckpointWatch:
    """Finds a task's new checkpoints by the time and size of its state file.

    One is reported when it has the same files in two polls, or when the task has ended: TensorFlow
    1 writes the .meta file after the state file. Source: tensorflow/python/training/saver.py,
    Saver.save.
    """

    def __init__(self, project: str, run: str, task: str) -> None:
        self._folder = _checkpoint_dir(project, run, task)
        self._stamp: Optional[Tuple[int, int, int]] = None
        self._newest = ""
        self._seen: Tuple[str, List[str]] = ("", [])

    def poll(self, has_ended: bool = False) -> List[str]:
        """Return the name of the newest checkpoint, if it is new and complete; else []."""
        stamp = _stamp(os.path.join(self._folder, state_file.STATE))
        if stamp is None or stamp == self._stamp:
            return []
        newest = state_file.read(self._folder)[:1]
        files = _files_of(self._folder, newest[0]) if newest else None
        if files is None:
            return []
        before, self._seen = self._seen, (newest[0], files)
        if before != self._seen and not has_ended:
            return []
        self._stamp = stamp
        if newest[0] == self._newest:
            return []
        self._newest = newest[0]
        return newest


def _checkpoint_dir(project: str, run: str, task: str) -> str:
    task_dir = paths.task(project, run, task)
    launch = records.load(Launch, paths.launch(task_dir))
    return paths.checkpoints(task_dir, launch.checkpoint_dir)


def _visible_names(folder: str) -> Optional[List[str]]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))[:MAX_NAMES]
    except OSError:
        return None


def _hold_complete(folder: str, held_dir: str, every: bool) -> List[Found]:
    held.begin(held_dir)
    opened = open_complete(folder, every)
    for checkpoint in opened:
        held.add(held_dir, checkpoint.files)
    return [checkpoint.describe() for checkpoint in opened]


def _find_good(
    folder: str, held_dir: str, memory: str, complete: List[Found], every: bool
) -> Tuple[List[Checkpoint], Dict[str, str]]:
    """Return the good ones of the `complete` checkpoints, and the error of each bad one by its
    name. If none is good, all older ones are held until one of them is."""
    bad: Dict[str, str] = {}
    good = _verify(held_dir, memory, complete, every, bad)
    if not good:
        older = _hold_complete(folder, held_dir, True)
        untried = [found for found in older if found["name"] not in bad]
        good = _verify(held_dir, memory, untried, every, bad)
    return good, bad


def _verify(
    held_dir: str, memory: str, complete: List[Found], every: bool, bad: Dict[str, str]
) -> List[Checkpoint]:
    """Return the good ones of `complete`, or only the first; add the others' errors to `bad`.

    They are hashed while TensorFlow reads them, unless a hash may make reading unnecessary.
    """
    hashed = parallel.begin(lambda: [_hash_files(held_dir, found) for found in complete])
    names = [found["name"] for found in complete]
    verified: Set[str] = set()
    if verify.remembered_names(memory).intersection(names):
        verified = verify.verified_before(memory, hashed())
    wanted = names if every else takewhile(lambda name: name not in verified, names)
    prefixes = [os.path.join(held_dir, name) for name in wanted if name not in verified]
    with closing(verify.find_errors(prefixes)) as results:
        for prefix, error in results:
            name = os.path.basename(prefix)
            if error:
                bad[name] = error
                continue
            verified.add(name)
            if not every:
                break
    checkpoints = hashed()
    verify.remember_verified(memory, [found for found in checkpoints if found.name in verified])
    for found in checkpoints:
        found.verified = found.name in verified
    good = [found for found in checkpoints if found.name not in bad]
    return good if every else sorted(good, key=lambda found: not found.verified)[:1]


def _without_hashes(found: Found) -> Checkpoint:
    files = [HashedFile(file["path"], file["size"], "") for file in found["files"]]
    return Checkpoint(found["name"], found["step"], verified=False, files=files)


def _hash_files(held_dir: str, found: Found) -> Checkpoint:
    def hash_file(file: Dict[str, Any]) -> HashedFile:
        sha256 = hashing.sha256(os.path.join(held_dir, file["path"]))
        return HashedFile(file["path"], file["size"], sha256)

    files = parallel.each(hash_file, found["files"], hashing.THREADS)
    return Checkpoint(found["name"], found["step"], verified=False, files=files)


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


def _stamp(path: Union[str, int]) -> Optional[Tuple[int, int, int]]:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_mtime_ns, info.st_size, info.st_ino)
