"""What holds for everything that tfdeploy prints for people, whatever the command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.agent import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOG_LINE = re.compile(r"\S+@\S+ +\| ")
# "1 results"; words that end with an s and are no plural are left out.
ONE_OF_MANY = re.compile(
    r"(?<![\d.,:-])\b1 (?!(?:is|was|has|process|this|address|less|class|its|as|does|gives)\b)"
    r"[a-z]{2,}s\b"
)
FETCH = re.compile(r"tfdeploy fetch \S+ (?P<run>/\S*/runs/\d{8}-\d{6}-[0-9a-f]{4})/(?P<path>\S+)")
STATE = re.compile(r"(?P<state>[A-Z]{4,9}) +(?P<task>[a-z]+:\d+) ")
ENDED, ALIVE = ("SUCCEEDED", "FAILED", "STOPPED"), "READY"
MAX_COLUMNS = 200
# ssh's own command, with the options of tfdeploy's masters: it is copied, and not read.
COPIED = re.compile(r".*: ssh -o ControlMaster=yes ")


def problems(text: str) -> list[str]:
    """Return what is wrong with the output of one command."""
    lines = [line for line in text.splitlines() if not LOG_LINE.match(line)]
    return [*_plurals(lines), *_own_files(lines), *_ready_after_the_end(lines)]


def long_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines that no terminal shows in one line, unless they are data: of a log, or a
    command to be copied."""
    long = (line for line in lines if len(line) > MAX_COLUMNS)
    return [line for line in long if not LOG_LINE.match(line) and not COPIED.match(line)]


def _plurals(lines: list[str]) -> Iterator[str]:
    yield from (f"one of a plural: {line}" for line in lines if ONE_OF_MANY.search(line))


def _own_files(lines: list[str]) -> Iterator[str]:
    for line in lines:
        for found in FETCH.finditer(line):
            if paths.is_own(found["run"], f"{found['run']}/{found['path']}"):
                yield f"tfdeploy's own file as a result: {line}"


def _ready_after_the_end(lines: list[str]) -> Iterator[str]:
    """A task that has ended is started before it can be READY again."""
    last: dict[str, str] = {}
    for line in lines:
        if found := STATE.match(line):
            if found["state"] == ALIVE and last.get(found["task"]) in ENDED:
                yield f"READY after the end: {line}"
            last[found["task"]] = found["state"]
