"""The lease of a start: on a host, one process at a time starts tasks of a run."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import Iterator, List

from .. import paths
from ..machine import leases
from ..refusal import Refusal

SAME_START_WAIT_S = 30.0  # less than the controller waits for an answer
STOP_WAIT_S = 5.0  # as a stop needs time of its own
POLL_S = 0.02


@contextmanager
def hold(run: str) -> Iterator[None]:
    """Wait until no other process starts tasks of this run below this root, and keep others from
    it. Raises Refusal after SAME_START_WAIT_S."""
    descriptors = _acquire(_resource(run))
    try:
        yield
    finally:
        leases.release(descriptors)


def wait_until_free(run: str) -> None:
    """Wait until no process starts tasks of this run, or for STOP_WAIT_S.

    Without that, a stop would miss tasks which an agent still starts whose controller has died.
    """
    try:
        resource = _resource(run)
    except FileNotFoundError:  # somebody has deleted the root; a stop finds the processes
        return
    deadline = time.monotonic() + STOP_WAIT_S
    while leases.is_held(resource) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _resource(run: str) -> str:
    root = os.stat(paths.root())
    return "start/{}-{}/{}".format(root.st_dev, root.st_ino, run)


def _acquire(resource: str) -> List[int]:
    deadline = time.monotonic() + SAME_START_WAIT_S
    while True:
        try:
            return leases.acquire([resource])
        except leases.ResourceTaken as taken:
            if time.monotonic() > deadline:
                raise Refusal(
                    "another start of this run has not ended: {}".format(taken.holder.description)
                ) from None
        time.sleep(POLL_S)
