"""Let ssh ask on the terminal: one host after the other, each as a job in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

TERMINAL = Path("/dev/tty")
_lock = threading.Lock()
displays: list[Callable[[], AbstractContextManager[None]]] = []
"""Contexts in which nothing is drawn on the terminal."""


def run(argv: Sequence[str]) -> int | None:
    """Run a command on the terminal; return its exit code, or None if this process has no terminal,
    or may not read from it.

    It has a process group of its own: what it leaves in the background is not ended by a later
    Ctrl-C. A Ctrl-C while it runs ends it, and is passed on to this process.
    """
    with _lock, ExitStack() as stack:
        try:
            tty = stack.enter_context(TERMINAL.open("r+b", buffering=0))
            if os.tcgetpgrp(tty.fileno()) != os.getpgrp():
                return None
        except OSError:
            return None
        for display in displays:
            stack.enter_context(display())
        with _blocked(signal.SIGTSTP):  # a job that Ctrl-Z stops would keep the terminal
            process = subprocess.Popen(argv, stdin=tty, stdout=tty, process_group=0)
        with _in_foreground(tty.fileno(), process.pid):
            code = process.wait()
    if code == -signal.SIGINT:
        os.kill(os.getpid(), signal.SIGINT)
    return code


@contextmanager
def _in_foreground(fd: int, group: int) -> Iterator[None]:
    """Give the terminal to another process group. This one may take it back, because the signal
    that would stop it is blocked in this thread."""
    with _blocked(signal.SIGTTOU):
        try:
            with suppress(OSError):  # it has exited already
                os.tcsetpgrp(fd, group)
                os.killpg(group, signal.SIGCONT)
            yield
        finally:
            os.tcsetpgrp(fd, os.getpgrp())


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Block a signal in this thread, and in what it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
