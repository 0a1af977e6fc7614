"""The library of inside/preload/sockets.c, which a task's processes load before any other."""

from __future__ import annotations

import os

from ....shared import TYPE_CHECKING
from ... import paths
from .. import process

if TYPE_CHECKING:
    from typing import Dict, Optional

COPY = "tfdeploy-preload"
# The path of the library by the process that prepared it: a forked process needs its own.
_prepared: Dict[int, str] = {}


class NotLoadable(Exception):
    """The library cannot be loaded on this host; the text says why."""


def library() -> str:
    """Return the path of the library's file on this host."""
    return os.path.join(paths.agent(), "preload", os.uname().machine + ".so")


def prepare() -> str:
    """Return a path from which programs can load the library as long as this process lives.

    That is its file, or a copy in memory: LD_PRELOAD cannot name a folder with a space, and a file
    system may allow no programs (noexec). Raises NotLoadable.
    """
    pid = os.getpid()
    if pid not in _prepared:
        file = library()
        if not os.path.exists(file):
            raise NotLoadable("there is no library for the processor " + os.uname().machine)
        error = _load_error(file)
        _prepared[pid] = file if error is None else _copy_to_memory(file, error)
    return _prepared[pid]


def is_loaded(pid: int) -> bool:
    """Return whether a process has loaded the library. Source: proc(5), maps."""
    ends = (os.path.join("preload", os.path.basename(library())), COPY + " (deleted)")
    lines = process.read(pid, "maps").decode(errors="replace").splitlines()
    return any(line.endswith(ends) for line in lines)


def _load_error(path: str) -> Optional[str]:
    """Return why programs cannot load the library from this path, or None."""
    if any(separator in path for separator in " :"):  # source: ld.so(8), LD_PRELOAD
        return "{} contains a space or a colon".format(path)
    import ctypes  # takes 4 ms, and only a start needs it

    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error)
    return None


def _copy_to_memory(file: str, why: str) -> str:
    """Return the path of a copy in memory. Raises NotLoadable with `why` if that fails, too."""
    try:
        copy = os.memfd_create(COPY, 0)  # stays open if this process becomes another program
        with open(file, "rb") as source:
            os.write(copy, source.read())
    except (OSError, AttributeError):  # glibc before 2.27 has no memfd_create
        raise NotLoadable(why) from None
    path = "/proc/{}/fd/{}".format(os.getpid(), copy)
    if _load_error(path) is not None:
        os.close(copy)
        raise NotLoadable(why)
    return path
