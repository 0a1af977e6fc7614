"""The cache of installers, which all environments of all projects use, and who uses it now."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager

from ...shared import TYPE_CHECKING
from .. import paths

if TYPE_CHECKING:
    from typing import Iterator


@contextmanager
def in_use() -> Iterator[None]:
    """Keep others from emptying the cache until the context ends."""
    descriptor = _open_lock()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def unused() -> Iterator[bool]:
    """Yield whether no build uses the cache; if none does, none can until the context ends."""
    descriptor = _open_lock()
    try:
        yield _is_free(descriptor)
    finally:
        os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock() -> int:
    return os.open(paths.cache() + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
