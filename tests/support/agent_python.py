"""A host's Python whose agents and supervisors run some code first: another clock, a slow disk.

The agent runs without site-packages and PYTHON… variables (-S -E), so neither can change it.
Supervisors are forks of the agent. The tasks run an unchanged Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = """#!/bin/sh
if [ "$1" = -S ]; then exec {python} -S -E {first} "$@"; fi
exec {python} "$@"
"""
FIRST = """
import os, runpy, sys

def dial(path=os.path.join(os.path.dirname(__file__), "dial"), open=os.open, flags=os.O_RDONLY):
    descriptor = open(path, flags)
    try:
        return float(os.read(descriptor, 99))
    finally:
        os.close(descriptor)

{code}
sys.argv = sys.argv[3:]  # without this file's path, and -S -E
if sys.argv[0] == "-c":
    exec(sys.argv.pop(1), {{"__name__": "__main__"}})
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
# The times of files stay real, as with a file server whose clock is another one.
SHIFT_CLOCK = "import time; time.time = lambda now=time.time: now() + dial()"
# Opening, renaming, linking and deleting a file takes dial() seconds, as on a busy file server.
SLOW_DISK = """
import builtins, time

def slow(function):
    def slower(*args, **more):
        if not str(args[0]).startswith("/proc/"):  # which is no disk
            time.sleep(dial())
        return function(*args, **more)
    return slower

builtins.open = slow(open)
for name in ("open", "replace", "rename", "link", "mkdir", "remove", "unlink", "fsync"):
    setattr(os, name, slow(getattr(os, name)))
"""


class AgentPython:
    """The Python of a host. `path` is its path for hosts.toml; `set` changes what `dial()` returns
    in `code`, at first 0, also in running agents and supervisors."""

    def __init__(self, folder: Path, python: str, code: str) -> None:
        folder.mkdir()
        self._dial = folder / "dial"
        self.set(0)
        (folder / "first.py").write_text(FIRST.format(code=code))
        self.path = folder / "python"
        self.path.write_text(PYTHON.format(python=python, first=folder / "first.py"))
        self.path.chmod(0o755)

    def set(self, value: float) -> None:
        fresh = self._dial.with_suffix(".new")
        fresh.write_text(str(value))
        fresh.replace(self._dial)
