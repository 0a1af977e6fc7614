"""Kill a process at one of its calls that others can see: of files, folders, sockets, processes."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from support import command_line
from support.projects import environment

if TYPE_CHECKING:
    from support.projects import Project

SOURCE = Path(__file__).with_suffix(".c")
# A part of the command line of each process that can be killed.
COMMAND_LINES = {"controller": "", "agent": " serve", "supervisor": "tfdeploy supervise "}
# What differs between two runs of the same command.
VARIABLE = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}|[0-9a-f]{12,}|\d+|(?<=/)tmp\w{8}\b|^[\w]{8}$")
NUMBERS = itertools.count()


@cache
def library() -> str:
    """Compile the library; return its path."""
    file = f"{_folder().name}/killed_calls.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", file, SOURCE, "-ldl"], check=True)
    return file


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder that is deleted when this process exits."""
    return tempfile.TemporaryDirectory(prefix="killed-calls-")


class Watched:
    """A command of which one process, the `victim`, is killed just before its call number `at` (0:
    never). `calls` are the calls that it made; the last one was not made any more."""

    def __init__(self, project: Project, words: tuple[str, ...], victim: str, at: int) -> None:
        self.folder = project.folder.parent / f"killed-{next(NUMBERS)}"
        self.folder.mkdir()
        (self.folder / "at").write_text(f"{at} {COMMAND_LINES[victim]}")
        preloaded = {"LD_PRELOAD": library(), "KILLED_CALLS": str(self.folder)}
        env = environment(project.folder) | preloaded
        self.done = command_line.run(*words, cwd=project.folder, env=env)

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text(errors="replace").splitlines() if file.is_file() else []


def chosen(calls: list[str], limit: int) -> list[int]:
    """Return the numbers of at most `limit` of the calls: the first one of each kind, that is the
    same function for the same kind of file, then others. Of more kinds, some from all over."""
    first: dict[str, int] = {}
    for number, call in enumerate(calls, 1):
        first.setdefault(VARIABLE.sub("#", os.path.normpath(call)), number)
    kinds = [*first.values()]
    others = [number for number in range(1, len(calls) + 1) if number not in kinds]
    step = max(1.0, len(kinds) / limit)
    spread = [kinds[int(at * step)] for at in range(min(limit, len(kinds)))]
    return sorted([*spread, *others[: limit - len(spread)]])
