"""Read what this host has stored of a task. A disk, a crash of the host or a person may have
damaged a file: then it is named, and nothing else suffers."""

from __future__ import annotations

import json
import os
from typing import Optional

from ...shared import filesystem, records
from ...shared.records import Launch, TaskState
from .. import paths
from ..refusal import Refusal

LAST_BYTES = 1 << 13  # more than a line of a history has
MEND = "tfdeploy stop ends the task if it runs; a tfdeploy resume writes the file again"


def launch(task_dir: str) -> Launch:
    """Return the launch of a task. Raises Refusal if it can't be read."""
    path = paths.launch(task_dir)
    try:
        return records.load(Launch, path)
    except (OSError, ValueError, TypeError) as error:
        raise Refusal(_unreadable(path, error), MEND) from None


def launch_if_readable(task_dir: str) -> Optional[Launch]:
    """Return the launch of a task; None if it has none that can be read."""
    try:
        return records.load(Launch, paths.launch(task_dir))
    except (OSError, ValueError, TypeError):
        return None


def state(task_dir: str) -> TaskState:
    """Return what the supervisor wrote last; if that can't be read, what the history says, with the
    reason. Raises FileNotFoundError if nothing was written yet, and Refusal if neither can be read.
    """
    path = paths.state(task_dir)
    try:
        return records.load(TaskState, path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError) as error:
        why = _unreadable(path, error)
        last = _last_of_history(task_dir, why)
        if last is None:
            raise Refusal(why, MEND) from None
        return last


def _unreadable(path: str, error: Exception) -> str:
    try:
        if not os.path.getsize(path):
            return "{} can't be read: it is empty".format(path)
    except OSError:
        pass
    why = error.strerror if isinstance(error, OSError) else "it is cut, or has another content"
    return "{} can't be read: {}".format(path, why)


def _last_of_history(task_dir: str, why: str) -> Optional[TaskState]:
    lines = filesystem.read_end(paths.history(*paths.parts_of_task(task_dir)), LAST_BYTES)
    for line in reversed(lines.splitlines()):
        try:
            last = json.loads(line)
            return TaskState(
                str(last["state"]),
                float(last["at"]),
                exit=last["exit"],
                restarts=int(last["restarts"]),
                reason="; ".join(filter(None, [str(last["reason"]), why])),
                cause=str(last["cause"]),
            )
        except (ValueError, TypeError, LookupError):
            continue
    return None
