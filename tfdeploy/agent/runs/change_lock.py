"""The lock of a change: of all controllers one at a time stops and starts a run again."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Iterator

from ...shared import filesystem
from ...shared.protocol.message import Done
from .. import paths
from ..refusal import Refusal
from ..reports.follow import caller_interrupts

POLL_S = 60.0


def change(project: str, run: str, by: str) -> Iterator[Done]:
    """Answer, and keep others from changing a run until the caller sends its next request or hangs
    up. `by` says who it is. Raises Refusal while somebody else does."""
    lock = _acquire(project, run)
    try:
        if lock >= 0:
            _write(lock, by)
        yield Done()
        while not caller_interrupts(POLL_S):
            pass
    finally:
        if lock >= 0:
            os.close(lock)


def refuse_if_held(project: str, run: str) -> None:
    """Raise Refusal while somebody changes a run."""
    lock = _acquire(project, run)
    if lock >= 0:
        os.close(lock)


def _acquire(project: str, run: str) -> int:
    """Return the descriptor of the lock, -1 if the run has no folder here or its disk is read-only:
    then nothing starts here either. Raises Refusal."""
    path, flags = paths.changing(project, run), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        lock = os.open(path, flags | os.O_NONBLOCK, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _held(run, path) from None
    return lock


def _write(lock: int, by: str) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, "{:.0f} {}\n".format(time.time(), by).encode(errors="replace"), 0)


def _held(run: str, path: str) -> Refusal:
    at, _, by = filesystem.read_if_possible(path).decode(errors="replace").partition(" ")
    since = time.strftime(" since %H:%M:%S UTC", time.gmtime(int(at))) if at.isdigit() else ""
    who = " by {}".format(by.strip()) if by else ""
    message = "run {} is being resumed or scaled{}{}".format(run, who, since)
    hint = "tfdeploy status --run {} shows what becomes of it; then type the command again"
    return Refusal(message, hint.format(run), changing=True)
