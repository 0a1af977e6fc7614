"""TensorFlow's `checkpoint` state file, and the complete sets of files that it names."""

from __future__ import annotations

import os
import re

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

STATE = "checkpoint"
LINE = re.compile(
    r'^\s*(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*"((?:[^"\\]|\\.)*)"', re.M
)
SHARD = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
BESIDE = (".index", ".meta")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def read(folder: str) -> List[str]:
    """The checkpoints that are named in a folder, newest first; none where nothing can be read."""
    try:
        with open(os.path.join(folder, STATE), encoding="utf-8", errors="replace") as file:
            return named(file.read())
    except OSError:
        return []


def write(folder: str, newest: str) -> None:
    """Name all complete sets of a folder, by relative paths, `newest` on top."""
    names = os.listdir(folder)
    indexes = [name for name in names if name.endswith(".index")]
    indexes.sort(key=lambda name: os.stat(os.path.join(folder, name)).st_mtime)
    whole = [name[: -len(".index")] for name in indexes]
    kept = [name for name in whole if name != newest and file_set(names, name)]
    lines = ['model_checkpoint_path: "{}"\n'.format(_escaped(newest))]
    lines += ['all_model_checkpoint_paths: "{}"\n'.format(_escaped(n)) for n in [*kept, newest]]
    fresh = os.path.join(folder, ".{}.new".format(STATE))
    with open(fresh, "w", encoding="utf-8") as file:
        file.writelines(lines)
    os.replace(fresh, os.path.join(folder, STATE))


def named(state: str) -> List[str]:
    """The checkpoints that a `checkpoint` state file names, newest first, without their folders.

    It is a CheckpointState message in text form; V1 writes absolute paths into it. (Source:
    tensorflow/python/checkpoint/checkpoint_management.py, update_checkpoint_state_internal.)
    """
    found = [(key, _unescaped(value)) for key, value in LINE.findall(state)]
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
    return sorted(name for name in mine if is_part(name, checkpoint))


def is_part(file: str, checkpoint: str) -> bool:
    """Whether a file, by its name, belongs to a checkpoint, be that whole or not."""
    end = file[len(checkpoint) :] if file.startswith(checkpoint) else ""
    return end in BESIDE or bool(SHARD.fullmatch(end))


def step(checkpoint: str) -> Optional[int]:
    """The training step that TensorFlow has put at a name's end."""
    found = re.search(r"-(\d+)$", checkpoint)
    return int(found[1]) if found else None


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _unescaped(text: str) -> str:
    """Protobuf's text form escapes as C does, and what is not ASCII byte by byte in octal."""

    def one(found: "re.Match[bytes]") -> bytes:
        octal, letter = found.groups()
        return bytes([int(octal, 8) & 255]) if octal else LETTERS.get(letter, letter)

    escape = re.compile(rb"\\(?:([0-7]{1,3})|(.))", re.S)
    return escape.sub(one, text.encode()).decode(errors="replace")
