"""The verb `pin`: the chief's complete checkpoints, held still by hard links while they are copied.

TensorFlow writes data, index and then the `checkpoint` state file, and deletes old sets as it goes
(max_to_keep). So the state file is read first, and only sets that are whole are linked; a set that
vanishes meanwhile is left out.
"""

from __future__ import annotations

import os
import re
import shutil
from itertools import islice
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import paths, records
from .records import Launch

PIN = ".tfdeploy-pin"
STATE_LINE = re.compile(
    r'^\s*(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*"((?:[^"\\]|\\.)*)"', re.M
)
SHARD = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
LOOKS = 100
EVENTS = "events.out.tfevents."


def pin(project: str, run: str, task: str, every: bool) -> Dict[str, Any]:
    """Pin the newest complete checkpoint of `task` (or `every` one) and list its event files.

    Answers `{checkpoint_dir, pin, checkpoints: [{name, step, files: [{path, size}]}], events:
    [path]}`, newest checkpoint first; paths are relative to `pin` and to `checkpoint_dir`. All are
    empty where the task was never started.
    """
    if task not in paths.tasks(project, run):
        return {"checkpoint_dir": "", "pin": "", "checkpoints": [], "events": []}
    folder = _checkpoint_dir(project, run, task)
    pinned = os.path.join(folder, PIN)
    found = _pin_all(folder, pinned, every) if os.path.isdir(folder) else []
    events = sorted(_events(folder))
    return {"checkpoint_dir": folder, "pin": pinned, "checkpoints": found, "events": events}


def unpin(project: str, run: str, task: str) -> None:
    """Let the pinned files go."""
    shutil.rmtree(os.path.join(_checkpoint_dir(project, run, task), PIN), ignore_errors=True)


def named(state: str) -> List[str]:
    """The checkpoints that a `checkpoint` state file names, newest first, without their folders.

    It is a CheckpointState message in text form; V1 writes absolute paths into it. (Source:
    tensorflow/python/checkpoint/checkpoint_management.py, update_checkpoint_state_internal.)
    """
    found = [(key, _unescaped(value)) for key, value in STATE_LINE.findall(state)]
    latest = [path for key, path in found if key == "model_checkpoint_path"]
    others = [path for key, path in found if key != "model_checkpoint_path"]
    return list(dict.fromkeys(os.path.basename(path) for path in [*latest, *reversed(others)]))


def file_set(names: List[str], checkpoint: str) -> Optional[List[str]]:
    """The files of a checkpoint among `names`, or None unless index and every shard are there."""
    mine = [name for name in names if name.startswith(checkpoint + ".")]
    shards: List[Tuple[str, str]] = []
    for name in mine:
        found = SHARD.fullmatch(name[len(checkpoint) :])
        if found:
            shards.append((found[1], found[2]))
    if not shards or checkpoint + ".index" not in mine:
        return None
    total = int(shards[0][1])
    if sorted(shards) != [("%05d" % number, "%05d" % total) for number in range(total)]:
        return None
    known = (".index", ".meta")
    return sorted(
        name
        for name in mine
        if name[len(checkpoint) :] in known or SHARD.fullmatch(name[len(checkpoint) :])
    )


def _checkpoint_dir(project: str, run: str, task: str) -> str:
    task_dir = paths.task(project, run, task)
    launch = records.load(Launch, paths.launch(task_dir))
    return os.path.join(paths.work(task_dir), launch.checkpoint_dir)


def _pin_all(folder: str, pinned: str, every: bool) -> List[Dict[str, Any]]:
    """What the state file names may be deleted before it is linked: then its newer text is read."""
    for _ in range(LOOKS):
        names = _named_now(folder)
        whole = _pin_named(folder, pinned, names)
        found = list(whole if every else islice(whole, 1))
        if found or names == _named_now(folder):
            return found
    return []


def _pin_named(folder: str, pinned: str, names: List[str]) -> Iterator[Dict[str, Any]]:
    shutil.rmtree(pinned, ignore_errors=True)
    os.makedirs(pinned, mode=0o700)
    for name in names:
        files = _link(folder, pinned, name)
        # The state file moves on before a set is deleted: one that it still names was whole.
        if files is not None and name in _named_now(folder):
            yield {"name": name, "step": _step(name), "files": files}


def _named_now(folder: str) -> List[str]:
    try:
        with open(os.path.join(folder, "checkpoint"), encoding="utf-8", errors="replace") as file:
            return named(file.read())
    except OSError:
        return []


def _link(folder: str, pinned: str, name: str) -> Optional[List[Dict[str, Any]]]:
    """Link one set, then look whether the links make it whole: it may be deleted meanwhile."""
    wanted = file_set(os.listdir(folder), name) or []
    for file in wanted:
        try:
            _hold(os.path.join(folder, file), os.path.join(pinned, file))
        except OSError:
            continue
    held = file_set(os.listdir(pinned), name)
    if held is None or held != wanted:
        return None
    return [{"path": file, "size": os.path.getsize(os.path.join(pinned, file))} for file in held]


def _hold(source: str, target: str) -> None:
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a filesystem without hard links
        shutil.copy2(source, target)


def _step(name: str) -> Optional[int]:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else None


def _events(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if EVENTS in name and os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder)


def _unescaped(text: str) -> str:
    """Protobuf's text form escapes as C does, and what is not ASCII byte by byte in octal."""

    def one(found: "re.Match[bytes]") -> bytes:
        octal, letter = found.groups()
        return bytes([int(octal, 8) & 255]) if octal else LETTERS.get(letter, letter)

    escape = re.compile(rb"\\(?:([0-7]{1,3})|(.))", re.S)
    return escape.sub(one, text.encode()).decode(errors="replace")
