"""The lock of a task: a supervisor is alive if it holds the lock.

The kernel releases the lock when the supervisor ends, so a pid that was reused cannot mislead.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Optional

from .. import paths

TRIES = 10
PAUSE_S = 0.02
# A task that was launched less than this ago may not have taken its lock yet.
STARTING_S = 60.0


def acquire(task_dir: str) -> int:
    """Take the task's lock and return its descriptor, which the supervisor will inherit.

    The kernel keeps the lock as long as any process has the descriptor open, so the task never
    looks abandoned between this process and the supervisor. Raises BlockingIOError if it is held.
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
        time.sleep(PAUSE_S)  # another process may only be checking it (see holder)
    os.ftruncate(descriptor, 0)
    return descriptor


def adopt(descriptor: int) -> None:
    """Become the holder of an inherited lock: write this pid, and keep the lock from children."""
    os.set_inheritable(descriptor, False)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def holder(task_dir: str) -> Optional[int]:
    """Return the pid of the task's supervisor, 0 if it has not written it yet, None without one."""
    try:
        # Only to read: the disk may be read-only.
        descriptor = os.open(paths.lock(task_dir), os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(descriptor, 32) or b"0")
    finally:
        os.close(descriptor)
    return None


def is_live(task_dir: str) -> bool:
    """Return whether the task runs or is starting; True if that cannot be determined.

    A task that is just starting has no lock yet.
    """
    try:
        if holder(task_dir) is not None:
            return True
        # After the clock was set back, a launch of the future is not young for years.
        is_young = abs(time.time() - os.stat(paths.launch(task_dir)).st_mtime) < STARTING_S
        return is_young and not os.path.exists(paths.state(task_dir))
    except FileNotFoundError:
        return False
    except OSError:
        return True
