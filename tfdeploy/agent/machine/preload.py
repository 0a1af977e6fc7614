"""The library preload/sockets.c, which a task's processes load before any other."""

from __future__ import annotations

import os

from .. import TYPE_CHECKING, paths
from . import process

if TYPE_CHECKING:
    from typing import Optional


def library() -> str:
    """Return the library's path on this host."""
    return os.path.join(paths.agent(), "preload", os.uname().machine + ".so")


def load_error() -> Optional[str]:
    """Return why the library cannot be loaded on this host, or None.

    The system may have no glibc, another processor, or programs forbidden on this file system.
    """
    path = library()
    if any(separator in path for separator in " :"):  # ld.so(8) splits LD_PRELOAD there
        return "{} contains a space or a colon".format(path)
    if not os.path.exists(path):
        return "there is no library for the processor {}".format(os.uname().machine)
    import ctypes  # takes 4 ms, and only a start needs it

    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error)
    return None


def is_loaded(pid: int) -> bool:
    """Return whether a process has loaded the library. Source: proc(5), maps."""
    end = os.path.join("preload", os.path.basename(library()))
    return any(line.endswith(end.encode()) for line in process.read(pid, "maps").splitlines())
