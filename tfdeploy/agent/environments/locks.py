"""Who uses an environment, and the cache of installers: locks of files, which end with a process.

An environment's lock is for the process that builds it or removes it. All environments of all
projects use the cache.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager

from ...shared import TYPE_CHECKING
from .. import paths

if TYPE_CHECKING:
    from typing import Iterator

WAIT_S = 0.2
REPORT_S = 2.0


def open_file(project: str, environment: str) -> int:
    """Return a descriptor of the lock's file, which is created if it is missing."""
    return os.open(paths.environment_lock(project, environment), os.O_RDWR | os.O_CREAT, 0o600)


def wait_for(descriptor: int) -> Iterator[None]:
    """Take the lock; yield every REPORT_S while another process has it."""
    reported = 0.0
    while not take(descriptor):
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            yield
        time.sleep(WAIT_S)


def take(descriptor: int) -> bool:
    """Take the lock, and return whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def taken(project: str, environment: str) -> Iterator[bool]:
    """Yield whether the lock is free; if it is, keep it until the context ends."""
    descriptor = open_file(project, environment)
    try:
        yield take(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def cache_in_use() -> Iterator[None]:
    """Keep others from emptying the cache until the context ends."""
    descriptor = _open_cache_lock()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def cache_unused() -> Iterator[bool]:
    """Yield whether no build uses the cache; if none does, none can until the context ends."""
    descriptor = _open_cache_lock()
    try:
        yield take(descriptor)
    finally:
        os.close(descriptor)


def _open_cache_lock() -> int:
    return os.open(paths.cache() + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
