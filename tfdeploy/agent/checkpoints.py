"""A task's complete checkpoints, held still by hard links while they are copied. The verb `pin`.

TensorFlow writes data, index and then the `checkpoint` state file, and deletes old sets as it goes
(max_to_keep). So the state file is read first, and only sets that are whole are linked; a set that
vanishes meanwhile is left out.
"""

from __future__ import annotations

import os
from contextlib import closing
from itertools import islice, takewhile

from . import TYPE_CHECKING, at_once, content, paths, records, state_file, verify
from .records import Launch

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

PIN = ".tfdeploy-pin"
LOOKS = 100
HASHED_AT_ONCE = 8  # a checkpoint's shards


def pin(project: str, run: str, task: str, every: bool) -> Dict[str, Any]:
    """Pin the newest good checkpoint of `task` (or `every` one).

    Answers `{checkpoint_dir, pin, checkpoints: [{name, step, verified, files: [{path, size,
    sha256}]}], bad: [{name, error}]}`, newest checkpoint first; paths are relative to `pin`.
    `verified` says that every tensor was read; `bad` are complete sets that could not be read to
    their end. All are empty where the task was never started.
    """
    if task not in paths.tasks(project, run):
        return {"checkpoint_dir": "", "pin": "", "checkpoints": [], "bad": []}
    folder = _checkpoint_dir(project, run, task)
    pinned = os.path.join(folder, PIN)
    found, bad = good(folder, pinned, every)
    return {
        "checkpoint_dir": folder,
        "pin": pinned,
        "checkpoints": found,
        "bad": [{"name": name, "error": error} for name, error in bad.items()],
    }


def unpin(project: str, run: str, task: str) -> None:
    """Let the pinned files go."""
    clear(os.path.join(_checkpoint_dir(project, run, task), PIN))


def hold_newest(checkpoint_dir: str, pin_dir: str) -> Optional[Dict[str, Any]]:
    """Hold the newest complete set of `checkpoint_dir` in `pin_dir`, which is the caller's own, and
    answer `{name, step, files: [{path, size}]}`; None where there is none.

    What is held already stays as it is. Nothing is verified. Raises OSError where `pin_dir` can't
    be written.
    """
    for name in state_file.read(checkpoint_dir)[:1]:
        files = _files_of(pin_dir, name)
        if files and _stamps(pin_dir, files) == _stamps(checkpoint_dir, files):
            return _described(pin_dir, name, files)
    held = hold(checkpoint_dir, pin_dir, False)
    return held[0] if held else None


def hold(folder: str, pinned: str, every: bool) -> List[Dict[str, Any]]:
    """Link the newest complete set (or `every` one) of `folder` into `pinned`, and nothing else.

    What the state file names may be deleted before it is linked: then its newer text is read.
    """
    for _ in range(LOOKS):
        names = state_file.read(folder)
        whole = _link_all(folder, pinned, names)
        found = list(whole if every else islice(whole, 1))
        if found or names == state_file.read(folder):
            return found
    return []


def install(incoming: str, home: str, name: str) -> List[str]:
    """Move the files of `incoming` into `home`, where they are the newest checkpoint, `name`.

    Data first, then the index, which makes TensorFlow see it, then the state file, which names it:
    no part of it is ever visible as a checkpoint. Returns what was written, the state file too.
    Raises OSError.
    """
    files = sorted(os.listdir(incoming), key=lambda file: file.endswith(".index"))
    for file in files:
        os.replace(os.path.join(incoming, file), os.path.join(home, file))
    state_file.write(home, name)
    return [*files, state_file.STATE]


class Saves:
    """A task's checkpoints as they come, noticed by its state file's time and size."""

    def __init__(self, project: str, run: str, task: str) -> None:
        self._folder = _checkpoint_dir(project, run, task)
        self._seen: Optional[Tuple[int, int, int]] = None
        self._newest = ""

    def new(self) -> List[str]:
        """The newest one's name, once it is another than before and its set is whole."""
        stamp = _stamp(os.path.join(self._folder, state_file.STATE))
        if stamp is None or stamp == self._seen:
            return []
        newest = state_file.read(self._folder)[:1]
        if not newest or _files_of(self._folder, newest[0]) is None:
            return []
        self._seen = stamp
        if newest[0] == self._newest:
            return []
        self._newest = newest[0]
        return newest


def _checkpoint_dir(project: str, run: str, task: str) -> str:
    task_dir = paths.task(project, run, task)
    launch = records.load(Launch, paths.launch(task_dir))
    return paths.checkpoints(task_dir, launch.checkpoint_dir)


def good(folder: str, pinned: str, every: bool) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """The sets that can be read, held in `pinned` and hashed, and what is wrong with the others:
    where the newest is bad, all older ones are held until one of them is found good."""
    bad: Dict[str, str] = {}
    for all_of_them in (every, True):
        held = [f for f in hold(folder, pinned, all_of_them) if f["name"] not in bad]
        found = _judged(folder, pinned, [_hashed(pinned, f) for f in held], every, bad)
        if found:
            return found, bad
    return [], bad


def _judged(
    folder: str, pinned: str, held: List[Dict[str, Any]], every: bool, bad: Dict[str, str]
) -> List[Dict[str, Any]]:
    """Those of `held` that are not bad, or the first of them; `bad` learns of the others."""
    verified = verify.remembered(folder, held)
    asked = held if every else _up_to_the_first(held, verified)
    prefixes = [os.path.join(pinned, f["name"]) for f in asked if f["name"] not in verified]
    with closing(verify.verdicts(prefixes)) as verdicts:
        for prefix, error in verdicts:
            name = os.path.basename(prefix)
            if error:
                bad[name] = error
                continue
            verified.add(name)
            if not every:
                break
    verify.remember(folder, [found for found in held if found["name"] in verified])
    sound = [{**f, "verified": f["name"] in verified} for f in held if f["name"] not in bad]
    return sound if every else sorted(sound, key=lambda found: not found["verified"])[:1]


def _up_to_the_first(held: List[Dict[str, Any]], known: Set[str]) -> List[Dict[str, Any]]:
    """What is newer than the first set that is known to be good."""
    return list(takewhile(lambda found: found["name"] not in known, held))


def _hashed(pinned: str, found: Dict[str, Any]) -> Dict[str, Any]:
    def hashed(file: Dict[str, Any]) -> Dict[str, Any]:
        return {**file, "sha256": content.sha256(os.path.join(pinned, file["path"]))}

    return {**found, "files": at_once.each(hashed, found["files"], HASHED_AT_ONCE)}


def _link_all(folder: str, pinned: str, names: List[str]) -> Iterator[Dict[str, Any]]:
    clear(pinned)
    if names:
        os.makedirs(pinned, mode=0o700)
    for name in names:
        files = _link(folder, pinned, name)
        # The state file moves on before a set is deleted: one that it still names was whole.
        if files is not None and name in state_file.read(folder):
            yield _described(pinned, name, files)


def _link(folder: str, pinned: str, name: str) -> Optional[List[str]]:
    """Link one set, then look whether the links make it whole: it may be deleted meanwhile."""
    wanted = _files_of(folder, name) or []
    for file in wanted:
        try:
            link_one(os.path.join(folder, file), os.path.join(pinned, file))
        except OSError:
            continue
    held = _files_of(pinned, name)
    return held if held == wanted else None


def link_one(source: str, target: str) -> None:
    """The same regular file by another name; a copy of it where links can't be had."""
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a filesystem without hard links
        import shutil  # as in clear

        shutil.copy2(source, target)


def clear(folder: str) -> None:
    """Remove a folder and what it holds, as far as that can be."""
    import shutil  # costs 2 ms, and neither `follow` nor most supervisors come by here

    shutil.rmtree(folder, ignore_errors=True)


def _files_of(folder: str, name: str) -> Optional[List[str]]:
    try:
        return state_file.file_set(os.listdir(folder), name)
    except OSError:
        return None


def _described(pinned: str, name: str, files: List[str]) -> Dict[str, Any]:
    described = [
        {"path": file, "size": os.path.getsize(os.path.join(pinned, file))} for file in files
    ]
    return {"name": name, "step": state_file.step(name), "files": described}


def _stamps(folder: str, files: List[str]) -> List[Any]:
    """What tells one file from another of its name, for links and for copies."""
    stamps = [_stamp(os.path.join(folder, file)) for file in files]
    return [stamp and stamp[:2] for stamp in stamps]


def _stamp(path: str) -> Optional[Tuple[int, int, int]]:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_mtime_ns, seen.st_size, seen.st_ino)
