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

POLL_S = 15.0
ASKED_S = 1.0  # others ask for the lock for a moment


def change(project: str, run: str, by: str) -> Iterator[Done]:
    """Answer, and keep others from changing a run until the caller sends its next request or hangs
    up. `by` says who it is. Raises Refusal while somebody else does."""
    lock = _acquire(project, run)
    try:
        if lock >= 0:
            _write(lock, by)
        yield Done()
        while not caller_interrupts(POLL_S):
            yield Done()  # on a connection that is dead this ends
    finally:
        if lock >= 0:
            os.ftruncate(lock, 0)
            os.close(lock)


def refuse_if_held(project: str, run: str) -> None:
    """Raise Refusal while somebody changes a run."""
    lock = _acquire(project, run, fcntl.LOCK_SH)
    if lock >= 0:
        os.close(lock)


def _acquire(project: str, run: str, kind: int = fcntl.LOCK_EX) -> int:
    """Return the descriptor of the lock, -1 if the run has no folder here or its disk is read-only:
    then nothing starts here either. Raises Refusal."""
    path, flags = paths.changing(project, run), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        lock = os.open(path, flags | os.O_NONBLOCK, 0o600)
    except OSError:
        return -1
    deadline = time.monotonic() + ASKED_S
    while not _lock(lock, kind):
        who = filesystem.read_if_possible(path).decode(errors="replace")
        if who or time.monotonic() > deadline:
            os.close(lock)
            raise _held(run, who)
        time.sleep(0.05)
    return lock


def _lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write(lock: int, by: str) -> None:
    os.ftruncate(lock, 0)
    text = "{:.0f} {} {}\n".format(time.time(), os.getpid(), by)
    os.pwrite(lock, text.encode(errors="replace"), 0)


def _held(run: str, text: str) -> Refusal:
    at, _, rest = text.partition(" ")
    pid, _, by = rest.partition(" ")
    hint = "tfdeploy status --run {} shows what becomes of it; then type the command again"
    since = ""
    if at.isdigit() and pid.isdigit():
        since = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(int(at)))
        hint += "; if that controller is gone, kill {} on this host lets you continue".format(pid)
    who = " by {}".format(by.strip()) if by else ""
    message = "run {} is being resumed or scaled{}{}".format(run, who, since)
    return Refusal(message, hint.format(run), changing=True)
