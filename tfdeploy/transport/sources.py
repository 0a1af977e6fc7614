"""What an answer of `ssh -G` was read from, and in which state all of that is.

With -v ssh names each file that it reads. What was absent, and where an Include could find more, it
doesn't name: that is found here, and where it can't be told for certain, no state is.
"""

from __future__ import annotations

import functools
import glob
import os
import pwd
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

State = list[int] | str | None
States = dict[str, State]

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
SERVICES = "/etc/services"  # the port, where the configuration has none
READING = "debug1: Reading configuration data "
EXECUTED = "debug1: Executing command: "
INCLUDE = re.compile(r'^[ \t]*"?include"?[ \t=]+(.+)', re.IGNORECASE | re.MULTILINE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
# What no file tells: a command's exit, the networks that this machine is on, and DNS.
FLEETING = re.compile(r"^[ \t]*\W?match\b.*\b(exec|localnetwork)\b", re.IGNORECASE | re.MULTILINE)
BY_DNS = re.compile(
    r"^canonicalize(hostname (?!false|no\b)|permittedcnames (?!none))", re.IGNORECASE | re.MULTILINE
)
# Python's glob and ssh's agree on all but these; newer ones of ssh fill in % and $ as well.
UNCLEAR = re.compile(r"[\\\[%$]")
# A file that is younger may have changed once more after ssh read it, with no trace in its times.
SETTLED_NS = 2_000_000_000


@functools.cache
def user() -> tuple[int, str, str]:
    """Whose configuration ssh reads: the id, the name and the home of the user that it runs as."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return os.getuid(), "", ""  # ssh itself refuses to run then
    return entry.pw_uid, entry.pw_name, entry.pw_dir


def states(sources: Iterable[str]) -> States:
    """Each source's state now: a path's, or as `$NAME` the value of an environment variable."""
    return {source: _state(source) for source in sources}


def behind(
    program: str, config: str | None, answer: str, said: str, asked_ns: int
) -> States | None:
    """The states that gave this answer of ssh, which said so on standard error with -v.

    None where another answer may come without any of them changing, and where one of them may have
    changed since `asked_ns` (of time.time_ns).
    """
    if EXECUTED in said or BY_DNS.search(answer):
        return None
    try:
        found = _sources(config, [line for line in said.splitlines() if line.startswith(READING)])
    except (OSError, ValueError):
        return None
    now = states([program, SERVICES, "$HOME", *sorted(found)])
    return now if all(_is_settled(state, asked_ns) for state in now.values()) else None


def _sources(config: str | None, lines: list[str]) -> set[str]:
    """What these lines of ssh name, and what could come to be named. Raises ValueError where what
    was read is more, or less, than the configuration explains."""
    read = {line.removeprefix(READING).rstrip() for line in lines}
    roots = {config} if config else {f"{user()[2]}/.ssh/config", SYSTEM_CONFIG}
    texts = [Path(file).read_text(errors="surrogateescape") for file in sorted(read)]
    patterns, variables = _mentioned("\n".join(texts))
    explained = roots | {path for pattern in patterns for path in _deciding(pattern)}
    if (config or SYSTEM_CONFIG) not in read or not read <= explained:
        raise ValueError(read)
    return explained | variables


@functools.lru_cache(maxsize=8)
def _mentioned(text: str) -> tuple[set[str], set[str]]:
    """A configuration's patterns of Include, and its environment variables. Raises ValueError."""
    if FLEETING.search(text):
        raise ValueError("what it says follows from more than files")
    patterns = {pattern for line in INCLUDE.findall(text) for pattern in _anchored(line)}
    return patterns, {f"${name}" for name in VARIABLE.findall(text)}


def _anchored(line: str) -> Iterator[str]:
    """The patterns of one Include, as ssh anchors them: a relative one both as in a user's file and
    as in the system's. Raises ValueError."""
    if UNCLEAR.search(line):
        raise ValueError(line)
    for word in shlex.split(line):
        for folder in ("~/.ssh", str(Path(SYSTEM_CONFIG).parent)):
            yield word if word.startswith(("/", "~")) else f"{folder}/{word}"


def _deciding(pattern: str) -> Iterator[str]:
    """The paths that decide what a pattern matches: all that match, and each directory in which
    another one could appear."""
    parts = Path(pattern).expanduser().parts
    for end in range(1, len(parts) + 1):
        if end == len(parts) or glob.has_magic(parts[end]):
            path = str(Path(*parts[:end]))
            yield from glob.glob(path) or [path]  # noqa: PTH207 - Path's takes no absolute ones


def _state(source: str) -> State:
    if source.startswith("$"):
        return os.environ.get(source[1:])
    try:
        found = os.stat(source)  # noqa: PTH116 - three times as fast as Path's
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _is_settled(state: State, asked_ns: int) -> bool:
    return not isinstance(state, list) or state[-1] < asked_ns - SETTLED_NS
