"""Cache the answers of `ssh -G` until something that they depend on changes.

Each answer is a file in the user's cache folder, with the states of its inputs. With -v, ssh names
each file that it reads, but neither absent files nor the folders in which an Include could find
more: `find_inputs` finds them. If it can't be certain, it returns no states, and the answer is not
cached.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import pwd
import re
import shlex
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.folders.user_folders import cache_file, write_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

State = list[int] | str | None
States = dict[str, State]

MAX_AGE_S = 30 * 86400  # older files may be of deleted configurations
SYSTEM_CONFIG = "/etc/ssh/ssh_config"
SERVICES = "/etc/services"  # the port, where the configuration has none
READING = "debug1: Reading configuration data "
EXECUTED = "debug1: Executing command: "
INCLUDE = re.compile(r'^[ \t]*"?include"?[ \t=]+(.+)', re.IGNORECASE | re.MULTILINE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
# Not in any file: a command's exit code, the networks of this machine, and DNS.
NOT_IN_FILES = re.compile(
    r"^[ \t]*\W?match\b.*\b(exec|localnetwork)\b", re.IGNORECASE | re.MULTILINE
)
BY_DNS = re.compile(
    r"^canonicalize(hostname (?!false|no\b)|permittedcnames (?!none))", re.IGNORECASE | re.MULTILINE
)
# Python's glob and ssh's differ in these; newer versions of ssh also expand % and $.
UNCLEAR = re.compile(r"[\\\[%$]")
# A younger file may have changed again after ssh read it, without a difference in its times.
SETTLED_NS = 2_000_000_000


def answer_file(program: str, argv: Sequence[str]) -> Path:
    """Return the file for the answer of an ssh program to these arguments."""
    return cache_file("ssh-config", program, *argv, os.uname().nodename, _user())


def read(file: Path) -> str | None:
    """Return the answer in a file if ssh would give the same one now; None if it would not, and if
    the file is absent, damaged or another user's."""
    try:
        with open(file, opener=_open_own) as content:
            states, text = json.load(content)
        return str(text) if read_states(states) == states else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def write(file: Path, text: str, states: States) -> None:
    """Store an answer that depends on these states, if that is possible."""
    write_cache(file, [states, text])
    with suppress(OSError):
        _delete_old(file.parent)


@functools.cache
def _delete_old(folder: Path) -> None:
    for file in folder.iterdir():
        if file.stat().st_mtime < time.time() - MAX_AGE_S:
            file.unlink()


def _open_own(path: str, flags: int) -> int:
    """Open an existing file that no other user can have written, because an answer may contain a
    command to run. Raises OSError."""
    fd = os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW)
    info = os.fstat(fd)
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise PermissionError(path)
    return fd


@functools.cache
def _user() -> tuple[int, str, str]:
    """Return the id, the name and the home of the user whose configuration ssh reads."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return os.getuid(), "", ""  # ssh itself refuses to run
    return entry.pw_uid, entry.pw_name, entry.pw_dir


def read_states(inputs: Iterable[str]) -> States:
    """Return the current state of each input: a path, or `$NAME` for an environment variable."""
    return {name: _state(name) for name in inputs}


def find_inputs(
    program: str, config: str | None, answer: str, messages: str, queried_ns: int
) -> States | None:
    """Return the states of everything that an answer of ssh depends on; `messages` are those of -v.

    None if the answer can change without a change of these states, and if one of them may have
    changed since `queried_ns` (of time.time_ns).
    """
    if EXECUTED in messages or BY_DNS.search(answer):
        return None
    try:
        inputs = _inputs_of_config(
            config, [line for line in messages.splitlines() if line.startswith(READING)]
        )
    except (OSError, ValueError):
        return None
    states = read_states([program, SERVICES, "$HOME", *sorted(inputs)])
    return states if all(_is_settled(state, queried_ns) for state in states.values()) else None


def _inputs_of_config(config: str | None, lines: list[str]) -> set[str]:
    """Return the files that these lines of ssh name, and those that an Include could find later.
    Raises ValueError if ssh read more, or less, than its configuration explains."""
    read = {line.removeprefix(READING).rstrip() for line in lines}
    roots = {config} if config else {f"{_user()[2]}/.ssh/config", SYSTEM_CONFIG}
    texts = [Path(file).read_text(errors="surrogateescape") for file in sorted(read)]
    patterns, variables = _parse_includes("\n".join(texts))
    explained = roots | {path for pattern in patterns for path in _paths_of_pattern(pattern)}
    if (config or SYSTEM_CONFIG) not in read or not read <= explained:
        raise ValueError(read)
    return explained | variables


@functools.lru_cache(maxsize=8)
def _parse_includes(text: str) -> tuple[set[str], set[str]]:
    """Return a configuration's Include patterns and its environment variables. Raises ValueError
    if its result depends on more than files."""
    if NOT_IN_FILES.search(text):
        raise ValueError("it depends on more than files")
    patterns = {pattern for line in INCLUDE.findall(text) for pattern in _absolute_patterns(line)}
    return patterns, {f"${name}" for name in VARIABLE.findall(text)}


def _absolute_patterns(line: str) -> Iterator[str]:
    """Yield the absolute patterns of one Include; a relative one both as in a user's file and as in
    the system's. Raises ValueError."""
    if UNCLEAR.search(line):
        raise ValueError(line)
    for word in shlex.split(line):
        for folder in ("~/.ssh", str(Path(SYSTEM_CONFIG).parent)):
            yield word if word.startswith(("/", "~")) else f"{folder}/{word}"


def _paths_of_pattern(pattern: str) -> Iterator[str]:
    """Yield the paths that a pattern depends on: all matches, and each directory in which another
    match could appear."""
    parts = Path(pattern).expanduser().parts
    for end in range(1, len(parts) + 1):
        if end == len(parts) or glob.has_magic(parts[end]):
            path = str(Path(*parts[:end]))
            yield from glob.glob(path) or [path]  # noqa: PTH207 - Path's takes no absolute ones


def _state(name: str) -> State:
    if name.startswith("$"):
        return os.environ.get(name[1:])
    try:
        info = os.stat(name)  # noqa: PTH116 - three times as fast as Path's
    except OSError:
        return None
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _is_settled(state: State, queried_ns: int) -> bool:
    return not isinstance(state, list) or state[-1] < queried_ns - SETTLED_NS
