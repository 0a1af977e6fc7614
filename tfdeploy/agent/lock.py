"""Alive means "holds the lock": the kernel drops it with its holder, so a reused pid can't lie."""

from __future__ import annotations

import fcntl
import os
from typing import Optional

from . import paths


def hold(task_dir: str) -> int:
    """Take the task's lock for as long as this process lives; children don't inherit it.

    Raises BlockingIOError where another supervisor holds it.
    """
    descriptor = os.open(paths.lock(task_dir), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


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
