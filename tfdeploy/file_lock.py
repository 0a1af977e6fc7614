"""Lock a file against other commands on the controller."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(file: Path, refusal: RunError) -> Iterator[None]:
    """Hold the lock of a file; the kernel releases it when the process ends.

    The file is created for this user alone, keeps its content, and is not opened through a link: a
    link in somebody else's folder could name any file. Raises `refusal` if another process holds
    the lock, and RunError if the file can't be opened.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        message = f"can't lock {file}: {error.strerror}"
        raise RunError(message, "delete it if it is a link") from None
    try:
        _lock(descriptor, refusal)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, refusal: RunError) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusal from None
