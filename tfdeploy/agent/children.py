"""Processes that this one starts: a program for its output, one that dies with this process, and
one that outlives it and shares only chosen descriptors with it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Callable, Sequence

from ..shared import filesystem
from .machine import process

PR_SET_PDEATHSIG = 1  # source: linux/prctl.h
# Indexes into /proc/<pid>/stat after the name; source: proc(5), fields 48 and 51.
ARG_START, ENV_END = 45, 48


def output(argv: Sequence[str], timeout_s: float) -> str:
    """Return what a program prints; "" if it can't be run, or takes longer. It runs in / and in a
    session of its own: a login shell may look for its terminal."""
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, stdin=null, stdout=subprocess.PIPE, stderr=null,
            timeout=timeout_s, cwd="/", start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def die_with(parent: int) -> Callable[[], None]:
    """Return what a child of the process `parent` runs before exec, so that it dies when that is
    killed: a task would keep its GPU without a supervisor. No signal is blocked in it."""
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return before_exec


def run_detached(
    work: Callable[[], None], title: str, log: str, descriptors: Sequence[int]
) -> None:
    """Run `work` in a process with its own session, in which only `descriptors` stay open and no
    signal is blocked.

    Its output goes to the file `log`, and ps shows `title`. Raises OSError if fork fails. Its
    parent exits at once, so init adopts it and no process has to wait for it. A fork is much faster
    than a new Python process.
    """
    parent = os.fork()
    if parent:
        with suppress(ChildProcessError):  # another thread has waited for it
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
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    try:
        output, _ = filesystem.open_log(log)
    except OSError:  # a full disk: `work` may say so by its descriptors
        output = null
    for number, source in enumerate((null, output, output)):
        os.dup2(source, number)
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in (0, 1, 2, *descriptors):
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(number)


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
