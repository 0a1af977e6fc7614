"""The folder of a run on the controller: one command writes to it at a time."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError, TransferFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.run import Run

_LOCKS: dict[Path, threading.Lock] = {}


@contextmanager
def exclusive(run: Run) -> Iterator[None]:
    """Hold the lock of the run's folder: two collects would write the same files.

    Wait for another thread that holds it, such as one that a Cancelled has left to finish a fetch.
    Raises RunError if another process holds it.
    """
    refusal = RunError(f"another collect of run {run.id} is running", "wait until it has finished")
    among_threads = _LOCKS.setdefault(run.folder, threading.Lock())
    with among_threads, run.open().locked(".collecting", refusal):
        yield


@contextmanager
def disk_errors(agent: Agent) -> Iterator[None]:
    """Raise TransferFailed with the host's name for an error of the controller's disk."""
    try:
        yield
    except OSError as error:
        message = f"can't write {error.filename or 'files'} on the controller: {error.strerror}"
        raise TransferFailed(agent.host, message) from None
