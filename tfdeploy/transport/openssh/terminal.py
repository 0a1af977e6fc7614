"""Let ssh ask on the terminal: one host after the other, each as a job in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TERMINAL = "/dev/tty"
_lock = threading.Lock()


def is_available() -> bool:
    """Return whether this process has a terminal and may read from it."""
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def run(argv: Sequence[str]) -> int:
    """Run a command on the terminal; return its exit code.

    It has a process group of its own: what it leaves in the background is not ended by a later
    Ctrl-C. A Ctrl-C while it runs ends it, and is passed on to this process.
    """
    with _lock, open(TERMINAL, "r+b", buffering=0) as tty:  # noqa: PTH123
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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with suppress(OSError):  # it has exited already
            os.tcsetpgrp(fd, group)
            os.killpg(group, signal.SIGCONT)
        yield
    finally:
        os.tcsetpgrp(fd, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
