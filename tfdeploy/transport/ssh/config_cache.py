"""Cache the answers of `ssh -G` until something that they depend on changes.

The cache is in memory, and in a file of JSON lines in the user's cache folder: first the states of
all inputs, then one answer per line. Answers are appended, so that many hosts do not rewrite the
file many times, and concurrent commands do not wait for each other.
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

from tfdeploy.transport.ssh import config_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport.ssh.config_inputs import States

MAX_AGE_S = 30 * 86400  # older files may be of deleted configurations
PARSE_ERRORS = (ValueError, TypeError, RecursionError)
_open_lock = threading.Lock()


class ConfigCache:
    """The answers of one ssh program from one configuration. Any thread may use it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._states, self._texts = _read(file)

    def get(self, argv: Sequence[str]) -> str | None:
        """Return ssh's answer to these arguments if it would be the same now; else None."""
        with self._lock:
            text = self._texts.get(shlex.join(argv))
            return (
                text if text and config_inputs.read_states(self._states) == self._states else None
            )

    def put(self, argv: Sequence[str], text: str, states: States) -> None:
        """Add an answer that depends on these states; drop answers that depend on other ones."""
        with self._lock:
            if states != self._states:
                self._states, self._texts = states, {}
                with suppress(OSError):
                    _create_file(self._file, states)
            self._texts[shlex.join(argv)] = text
            line = json.dumps([_digest(states), shlex.join(argv), text]) + "\n"
            with suppress(OSError), open(self._file, "ab", buffering=0, opener=_open_own) as file:
                file.write(line.encode())  # in one write: lines of two commands must not mix


def open_cache(program: str, config: str | None) -> ConfigCache:
    """Return the cache of an ssh program for a configuration file of -F, or for ssh's own one."""
    key = json.dumps([program, config, os.uname().nodename, config_inputs.user()])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    cache = Path.home() / (os.environ.get("XDG_CACHE_HOME") or ".cache")
    with _open_lock:
        return _cached(cache / "tfdeploy" / "ssh-config" / f"{name}.jsonl")


_cached = functools.cache(ConfigCache)


def _read(file: Path) -> tuple[States, dict[str, str]]:
    """Return a file's states and answers; none if it is absent, damaged or another user's."""
    texts = {}
    try:
        with open(file, opener=_open_own) as lines:
            states = dict(json.loads(next(lines, "{}")))
            digest = _digest(states)
            for line in lines:
                with suppress(*PARSE_ERRORS):
                    line_digest, arguments, text = json.loads(line)
                    if line_digest == digest:  # else another command replaced the file meanwhile
                        texts[str(arguments)] = str(text)
    except (OSError, *PARSE_ERRORS):
        return {}, {}
    return states, texts


def _create_file(file: Path, states: States) -> None:
    """Replace the file by one with these states and no answers."""
    nearest = next(folder for folder in file.parents if folder.exists())
    if nearest.stat().st_uid not in (0, os.geteuid()):
        return  # for example root with another user's HOME
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
        new.write(json.dumps(states) + "\n")
    Path(new.name).replace(file)
    for other in file.parent.iterdir():
        if other.stat().st_mtime < time.time() - MAX_AGE_S:
            other.unlink()


def _open_own(path: str, flags: int) -> int:
    """Open an existing file that no other user can have written, because an answer may contain a
    command to run. Raises OSError."""
    fd = os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW)
    info = os.fstat(fd)
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise PermissionError(path)
    return fd


def _digest(states: States) -> str:
    return hashlib.sha256(json.dumps(states, sort_keys=True).encode()).hexdigest()[:16]
