"""TensorFlow's `checkpoint` state file, and the complete checkpoints that it names."""

from __future__ import annotations

import os
import re
from typing import Iterable, List, Optional, Tuple

from . import filesystem

STATE = "checkpoint"
MAX_CHARACTERS = 1 << 24  # another program's file of this name may be its whole model
LINE = re.compile(
    r"^\s*(model_checkpoint_path|all_model_checkpoint_paths)\s*:\s*"
    r'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"',
    re.M,
)
SHARD = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
INDEX = ".index"  # the file with which TensorFlow finds a checkpoint
OTHER_PARTS = (INDEX, ".meta")
ESCAPED_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def read(folder: str) -> List[str]:
    """Return the checkpoints that a folder's state file names, newest first; [] if it has none."""
    try:
        descriptor = filesystem.open_regular(os.path.join(folder, STATE), 0)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            return parse(file.read(MAX_CHARACTERS))
    except OSError:
        return []


def write(folder: str, newest: str) -> None:
    """Name all complete checkpoints of a folder, by relative paths, `newest` as the latest.

    Raises OSError.
    """
    files = os.listdir(folder)
    indexes = [name for name in files if name.endswith(INDEX)]
    indexes.sort(key=lambda name: os.stat(os.path.join(folder, name)).st_mtime)
    others = [name for name in files if not name.endswith(INDEX)]
    content = text([*indexes, *others], newest)
    state = os.path.join(folder, STATE)
    fresh = filesystem.temporary_name(state)
    filesystem.replace_file(state, content.encode(), fresh=fresh)


def text(files: List[str], newest: str) -> str:
    """Return the state file of a folder with these files, of which the oldest index comes first."""
    names = [name[: -len(INDEX)] for name in files if name.endswith(INDEX)]
    older = [name for name in names if name != newest and file_set(files, name)]
    lines = ['model_checkpoint_path: "{}"\n'.format(_escape(newest))]
    lines += ['all_model_checkpoint_paths: "{}"\n'.format(_escape(n)) for n in [*older, newest]]
    return "".join(lines)


def parse(text: str) -> List[str]:
    """Return the checkpoints that a state file names, newest first, without their folders.

    The file is a CheckpointState message in text form; V1 writes absolute paths into it. (Source:
    tensorflow/python/checkpoint/checkpoint_management.py, update_checkpoint_state_internal.)
    """
    found = [(key, _unescape(value)) for key, value in LINE.findall(text)]
    latest = [path for key, path in found if key == "model_checkpoint_path"]
    others = [path for key, path in found if key != "model_checkpoint_path"]
    return list(dict.fromkeys(os.path.basename(path) for path in [*latest, *reversed(others)]))


def file_set(names: List[str], checkpoint: str) -> Optional[List[str]]:
    """Return the files of a checkpoint among `names`; None if its index or a shard is missing."""
    candidates = [name for name in names if name.startswith(checkpoint + ".")]
    shards: List[Tuple[str, str]] = []
    for name in candidates:
        match = SHARD.fullmatch(name[len(checkpoint) :])
        if match:
            shards.append((match[1], match[2]))
    if not shards or checkpoint + INDEX not in candidates:
        return None
    total = int(shards[0][1])
    if sorted(shards) != [("%05d" % number, "%05d" % total) for number in range(total)]:
        return None
    return sorted(name for name in candidates if is_part(name, checkpoint))


def index_last(names: Iterable[str]) -> List[str]:
    """Return the names of files in the order in which they may appear in a folder, so that no part
    of a checkpoint is ever visible. They disappear in the opposite order."""
    return sorted(names, key=lambda name: (name.endswith(INDEX), name))


def is_part(file: str, checkpoint: str) -> bool:
    """Return whether a file name belongs to a checkpoint, which may be incomplete."""
    suffix = file[len(checkpoint) :] if file.startswith(checkpoint) else ""
    return suffix in OTHER_PARTS or bool(SHARD.fullmatch(suffix))


def step(checkpoint: str) -> Optional[int]:
    """Return the training step that TensorFlow appends to a checkpoint's name, if there is one."""
    match = re.search(r"-(\d{1,18})$", checkpoint)  # a host may name a number without end
    return int(match[1]) if match else None


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _unescape(text: str) -> str:
    """Protobuf's text form escapes as C does; bytes that are not ASCII are octal numbers."""

    def replace(match: "re.Match[bytes]") -> bytes:
        octal, letter = match.groups()
        return bytes([int(octal, 8) & 255]) if octal else ESCAPED_LETTERS.get(letter, letter)

    escape = re.compile(rb"\\(?:([0-7]{1,3})|(.))", re.S)
    return escape.sub(replace, text.encode()).decode(errors="replace")
