"""The answers of `ssh -G` that are kept, each while nothing that it was read from has changed.

Kept in memory, and in a file of JSON lines in this user's cache: first the states of all that the
answers were read from, then one answer a line. A line is appended when its answer comes, so that
many hosts never write the file many times, and commands side by side don't wait for each other.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shlex
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.transport import sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport.sources import States

OLD_S = 30 * 86400  # of a configuration that is gone, maybe; else it is asked anew
NONSENSE = (ValueError, TypeError, RecursionError)
_opening = threading.Lock()


class Answers:
    """What one ssh program answered from one configuration. Any thread may use it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._states, self._texts = _read(file)

    def recall(self, argv: Sequence[str]) -> str | None:
        """What ssh answered to these words, where it would answer the same now."""
        with self._lock:
            text = self._texts.get(shlex.join(argv))
            return text if text and sources.states(self._states) == self._states else None

    def keep(self, argv: Sequence[str], text: str, states: States) -> None:
        """Keep an answer that these states gave. What another state gave is forgotten."""
        with self._lock:
            if states != self._states:
                self._states, self._texts = states, {}
                with suppress(OSError):
                    _begin(self._file, states)
            self._texts[shlex.join(argv)] = text
            line = json.dumps([_mark(states), shlex.join(argv), text]) + "\n"
            with suppress(OSError), open(self._file, "ab", buffering=0, opener=_own) as file:
                file.write(line.encode())  # at once, or lines of two commands could mix


def of(program: str, config: str | None) -> Answers:
    """The answers of this ssh from the configuration file that -F gives it, or from its own."""
    key = json.dumps([program, config, os.uname().nodename, sources.user()])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    cache = Path.home() / (os.environ.get("XDG_CACHE_HOME") or ".cache")
    with _opening:
        return _opened(cache / "tfdeploy" / "ssh-config" / f"{name}.jsonl")


_opened = functools.cache(Answers)


def _read(file: Path) -> tuple[States, dict[str, str]]:
    """The states and the answers of a file; none where it is absent, torn or another user's."""
    texts = {}
    try:
        with open(file, opener=_own) as lines:
            states = dict(json.loads(next(lines, "{}")))
            mark = _mark(states)
            for line in lines:
                with suppress(*NONSENSE):
                    given, question, text = json.loads(line)
                    if given == mark:  # else it came after another command began the file anew
                        texts[str(question)] = str(text)
    except (OSError, *NONSENSE):
        return {}, {}
    return states, texts


def _begin(file: Path, states: States) -> None:
    """A file with these states and no answer yet takes the place of any other."""
    nearest = next(folder for folder in file.parents if folder.exists())
    if nearest.stat().st_uid not in (0, os.geteuid()):
        return  # root, say, with another user's HOME
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
        new.write(json.dumps(states) + "\n")
    Path(new.name).replace(file)
    for other in file.parent.iterdir():
        if other.stat().st_mtime < time.time() - OLD_S:
            other.unlink()


def _own(path: str, flags: int) -> int:
    """Opens a file that is there and that nobody else can have written, for an answer may name a
    command to run. Raises OSError."""
    fd = os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise PermissionError(path)
    return fd


def _mark(states: States) -> str:
    return hashlib.sha256(json.dumps(states, sort_keys=True).encode()).hexdigest()[:16]
