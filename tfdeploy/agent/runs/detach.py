"""Fork a process that outlives this one and shares only chosen descriptors with it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Callable, Sequence

from ..machine import process

# Indexes into /proc/<pid>/stat after the name; source: proc(5), fields 48 and 51.
ARG_START, ENV_END = 45, 48


def run_detached(
    work: Callable[[], None], title: str, log: str, descriptors: Sequence[int]
) -> None:
    """Run `work` in a process with its own session, in which only `descriptors` stay open.

    Its output goes to the file `log`, and ps shows `title`. Raises OSError if fork fails. Its
    parent exits at once, so init adopts it and no process has to wait for it. A fork is much faster
    than a new Python process.
    """
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        return
    try:
        if os.fork() == 0:
            gc.freeze()  # a collection would write to, and so copy, all memory of the parent
            _detach(log, descriptors)
            set_process_title(title)
            work()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(0)  # the callers on the stack belong to the parent process


def _detach(log: str, descriptors: Sequence[int]) -> None:
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, source in enumerate((null, output, output)):
        os.dup2(source, number)
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in (0, 1, 2, *descriptors):
            _close(number)


def set_process_title(title: str) -> None:
    """Write `title` over this process's command line; leave it as it is if the title is too long.

    If the last byte of the command line's memory is not zero any more, the kernel reads on up to
    the next zero, in the memory of the environment. Source: proc(5) on cmdline; PostgreSQL, sshd
    and others do the same.
    """
    name = os.fsencode(title) + b"\0"
    fields = process.stat(os.getpid())
    start, end = (int(fields[index]) for index in (ARG_START, ENV_END)) if fields else (0, 0)
    if not start or end - start < len(name):
        return
    os.environ.update(os.environ.copy())  # makes the C library copy the variables elsewhere
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, name, len(name))


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError:  # the descriptor of the listing itself
        pass
