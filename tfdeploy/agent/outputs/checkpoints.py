"""The verb `pin`: keep a task's complete checkpoints in place by hard links, while they are copied.

TensorFlow writes the data, the index and then the state file `checkpoint`, and deletes old
checkpoints as it continues (max_to_keep). So the state file is read first, and only complete
checkpoints are linked; one that is deleted meanwhile is skipped.
"""

from __future__ import annotations

import os
from contextlib import closing
from itertools import islice, takewhile

from .. import TYPE_CHECKING, parallel, paths, records
from ..machine import filesystem, hashing
from ..protocol.message import Done
from ..protocol.outputs import BadCheckpoint, Checkpoint, HashedFile, Linked, PinAnswer, Pinned
from ..records import Launch
from . import state_file, verify

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

    Found = Dict[str, Any]  # {name, step, files: [{path, size}]}

PIN = ".tfdeploy-pin"
MAX_TRIES = 100
MAX_NAMES = 6


def pin(project: str, run: str, task: str, every: bool) -> Iterator[PinAnswer]:
    """Pin the newest good checkpoint of `task` (or `every` one). Yield what is linked, so that it
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
    pin_dir = os.path.join(folder, PIN)
    linked = pin_complete(folder, pin_dir, every)
    if linked:
        yield Linked(pin_dir, [_without_hashes(found) for found in linked])
    good, bad = _find_good(folder, pin_dir, linked, every)
    yield Pinned(
        checkpoint_dir=folder,
        pin=pin_dir,
        checkpoints=good,
        bad=[BadCheckpoint(name, error) for name, error in bad.items()],
        there=_visible_names(folder),
        mtimes_ns={
            file.path: os.stat(os.path.join(pin_dir, file.path)).st_mtime_ns
            for found in good
            for file in found.files
        },
    )


def unpin(project: str, run: str, task: str) -> Done:
    """Delete the links that `pin` made."""
    filesystem.remove_folder(os.path.join(_checkpoint_dir(project, run, task), PIN))
    return Done()


def pin_good(folder: str, pin_dir: str, every: bool) -> Tuple[List[Checkpoint], Dict[str, str]]:
    """Link the newest good checkpoint of `folder` (or `every` one) into `pin_dir`, and hash it.
    Return as `_find_good` does."""
    return _find_good(folder, pin_dir, pin_complete(folder, pin_dir, every), every)


def pin_newest(checkpoint_dir: str, pin_dir: str) -> Optional[Found]:
    """Link the newest complete checkpoint into `pin_dir`, which is the caller's own.

    Return it, or None if there is none. What is linked already is not linked again. Nothing is
    verified. Raises OSError if `pin_dir` can't be written.
    """
    for name in state_file.read(checkpoint_dir)[:1]:
        files = _files_of(pin_dir, name)
        if files and _file_stamps(pin_dir, files) == _file_stamps(checkpoint_dir, files):
            return _describe(pin_dir, name, files)
    found = pin_complete(checkpoint_dir, pin_dir, False)
    return found[0] if found else None


def pin_complete(folder: str, pin_dir: str, every: bool) -> List[Found]:
    """Link the newest complete checkpoint of `folder` (or `every` one) into the emptied `pin_dir`.

    A checkpoint that the state file names may be deleted before it is linked: then the state file
    has changed and is read again.
    """
    for _ in range(MAX_TRIES):
        names = state_file.read(folder)
        complete = _link_all(folder, pin_dir, names)
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
    for file in files:
        os.replace(os.path.join(incoming, file), os.path.join(folder, file))
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


def _find_good(
    folder: str, pin_dir: str, linked: List[Found], every: bool
) -> Tuple[List[Checkpoint], Dict[str, str]]:
    """Return the good ones of the `linked` checkpoints, and the error of each bad one by its name.
    If none is good, all older ones are linked until one of them is."""
    bad: Dict[str, str] = {}
    good = _verify(folder, pin_dir, linked, every, bad)
    if not good:
        older = pin_complete(folder, pin_dir, True)
        untried = [found for found in older if found["name"] not in bad]
        good = _verify(folder, pin_dir, untried, every, bad)
    return good, bad


def _verify(
    folder: str, pin_dir: str, linked: List[Found], every: bool, bad: Dict[str, str]
) -> List[Checkpoint]:
    """Return the good ones of `linked`, or only the first; add the others' errors to `bad`.

    They are hashed while TensorFlow reads them, unless a hash may make reading unnecessary.
    """
    hashed = parallel.begin(lambda: [_hash_files(pin_dir, found) for found in linked])
    names = [found["name"] for found in linked]
    verified: Set[str] = set()
    if verify.remembered_names(folder).intersection(names):
        verified = verify.verified_before(folder, hashed())
    wanted = names if every else takewhile(lambda name: name not in verified, names)
    prefixes = [os.path.join(pin_dir, name) for name in wanted if name not in verified]
    with closing(verify.find_errors(prefixes)) as results:
        for prefix, error in results:
            name = os.path.basename(prefix)
            if error:
                bad[name] = error
                continue
            verified.add(name)
            if not every:
                break
    pinned = hashed()
    verify.remember_verified(folder, [found for found in pinned if found.name in verified])
    for found in pinned:
        found.verified = found.name in verified
    good = [found for found in pinned if found.name not in bad]
    return good if every else sorted(good, key=lambda found: not found.verified)[:1]


def _without_hashes(found: Found) -> Checkpoint:
    files = [HashedFile(file["path"], file["size"], "") for file in found["files"]]
    return Checkpoint(found["name"], found["step"], verified=False, files=files)


def _hash_files(pin_dir: str, found: Found) -> Checkpoint:
    def hash_file(file: Dict[str, Any]) -> HashedFile:
        sha256 = hashing.sha256(os.path.join(pin_dir, file["path"]))
        return HashedFile(file["path"], file["size"], sha256)

    files = parallel.each(hash_file, found["files"], hashing.THREADS)
    return Checkpoint(found["name"], found["step"], verified=False, files=files)


def _link_all(folder: str, pin_dir: str, names: List[str]) -> Iterator[Found]:
    filesystem.remove_folder(pin_dir)
    if names:
        os.makedirs(pin_dir, mode=0o700)
    for name in names:
        files = _link_checkpoint(folder, pin_dir, name)
        # TensorFlow updates the state file before it deletes a checkpoint: one that the file still
        # names was complete.
        if files is not None and name in state_file.read(folder):
            yield _describe(pin_dir, name, files)


def _link_checkpoint(folder: str, pin_dir: str, name: str) -> Optional[List[str]]:
    """Link one checkpoint. Return its files, or None if it was incomplete or deleted meanwhile."""
    wanted = _files_of(folder, name) or []
    for file in wanted:
        try:
            filesystem.link_or_copy(os.path.join(folder, file), os.path.join(pin_dir, file))
        except OSError:
            continue
    linked = _files_of(pin_dir, name)
    return linked if linked == wanted else None


def _files_of(folder: str, name: str) -> Optional[List[str]]:
    try:
        return state_file.file_set(os.listdir(folder), name)
    except OSError:
        return None


def _describe(pin_dir: str, name: str, files: List[str]) -> Found:
    sizes = [{"path": file, "size": os.path.getsize(os.path.join(pin_dir, file))} for file in files]
    return {"name": name, "step": state_file.step(name), "files": sizes}


def _file_stamps(folder: str, files: List[str]) -> List[Any]:
    """Return what changes when a file is replaced. It is the same for a file's link or copy."""
    stamps = [_stamp(os.path.join(folder, file)) for file in files]
    return [stamp and stamp[:2] for stamp in stamps]


def _stamp(path: str) -> Optional[Tuple[int, int, int]]:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (info.st_mtime_ns, info.st_size, info.st_ino)
