"""A child that outlives us: forked, so that it needs no start of its own, and sharing nothing."""

from __future__ import annotations

import ctypes
import os
import sys

from . import TYPE_CHECKING, process

if TYPE_CHECKING:
    from typing import Callable, Sequence

# Positions in /proc/<pid>/stat behind the name; source: proc(5), fields 48 and 51.
ARG_START, ENV_END = 45, 48


def begin(work: Callable[[], None], title: str, log: str, kept: Sequence[int]) -> None:
    """Do `work` in a session of its own, with nothing of ours but the descriptors `kept`. What it
    says goes to the file `log`; `title` is what ps shows. Raises OSError where we may not fork.

    Nobody waits for it: its parent is gone at once, so init takes it.
    """
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        return
    try:
        if os.fork() == 0:
            _leave(log, kept)
            call_me(title)
            work()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(0)  # what is behind us on the stack is our parent's


def _leave(log: str, kept: Sequence[int]) -> None:
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, source in enumerate((nothing, output, output)):
        os.dup2(source, number)
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in (0, 1, 2, *kept):
            _close(number)


def call_me(title: str) -> None:
    """Write it over our command line, which the kernel shows to all; in its own words if it can't
    be. Once its last zero is gone, the kernel reads on to the next one, into what was the
    environment. (Source: proc(5) on cmdline; so do PostgreSQL, sshd and others.)"""
    name = os.fsencode(title) + b"\0"
    fields = process.stat(os.getpid())
    begins, ends = (int(fields[at]) for at in (ARG_START, ENV_END)) if fields else (0, 0)
    if not begins or ends - begins < len(name):
        return
    os.environ.update(os.environ.copy())  # the C library makes copies elsewhere
    ctypes.memset(begins, 0, ends - begins)
    ctypes.memmove(begins, name, len(name))


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError:  # the listing's own
        pass
