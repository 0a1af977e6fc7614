"""Alive means "holds the lock": the kernel drops it with its holder, so a reused pid can't lie."""

from __future__ import annotations

import fcntl
import os
import time

from . import TYPE_CHECKING, paths

if TYPE_CHECKING:
    from typing import Optional

TRIES = 10
PAUSE_S = 0.02


def take(task_dir: str) -> int:
    """Take the task's lock, to be handed to its supervisor. Raises BlockingIOError where it's held.

    The kernel keeps it for as long as any process has the descriptor, so there is no moment between
    us and the supervisor at which the task looks abandoned.
    """
    descriptor = os.open(paths.lock(task_dir), os.O_RDWR | os.O_CREAT, 0o600)
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not left:
                os.close(descriptor)
                raise
        time.sleep(PAUSE_S)  # it may be but a look (see holder)
    os.ftruncate(descriptor, 0)
    return descriptor


def adopt(descriptor: int) -> None:
    """Called by the supervisor, who holds it from now on; its children don't inherit it."""
    os.set_inheritable(descriptor, False)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def holder(task_dir: str) -> Optional[int]:
    """The pid of the living supervisor of this task, 0 while it has not written it, or None."""
    try:
        descriptor = os.open(paths.lock(task_dir), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(descriptor, 32) or b"0")
    finally:
        os.close(descriptor)
    return None
