"""How a run ended: one rule for `run`, `attach`, `watch` and the summary of [notify]. Pure."""

from __future__ import annotations

import signal
from typing import Callable, Literal, Optional, Set, Union

from .records import STOPPED, SUCCEEDED, TaskReport, TaskState

Ended = Union[TaskReport, TaskState]
Result = Literal["succeeded", "ended", "stopped", "failed"]


IDLE_KEY = "idle_gpu_stop_s"
# In the reason of a task that failed: what it trained with has ended.
NOT_RESTARTED_ALONE = "not restarted alone"
SIGTERM_EXIT = 143  # 128 + 15, as a shell shows it: a command stopped the run


def result(chief: str, find: Callable[[str], Optional[Ended]]) -> Result:
    """Return "succeeded", "ended" (by max_duration_s), "stopped" (by a command, or because its GPUs
    were idle) or "failed".

    `find` returns what is known of a task by its name, None for nothing.
    """
    found = find(chief)
    if found and found.state == SUCCEEDED:
        return "succeeded"
    if found and found.planned:
        return "ended"
    return "stopped" if _was_stopped_by_command(chief, find) else "failed"


def why_stopped(reason: str) -> str:
    """Return why a run stopped itself, from the reason of its chief; "" if a command stopped it."""
    return reason.partition("; ")[0] if IDLE_KEY in reason else ""


def exit_code(chief: str, find: Callable[[str], Optional[Ended]]) -> int:
    """Return the exit code of `tfdeploy run`: for a failure the chief's, as a shell shows it, or 1
    if the chief ended because of another task."""
    found = find(chief)
    ended = result(chief, find)
    if ended != "failed":
        return SIGTERM_EXIT if ended == "stopped" else 0
    code = 1 if not found or found.cause else found.exit or 1
    return 128 - code if code < 0 else code


def _was_stopped_by_command(task: str, find: Callable[[str], Optional[Ended]]) -> bool:
    """Follow the causes of ends to the first one. A task of which nothing is known, or tasks that
    name each other, were not stopped by a command."""
    seen: Set[str] = set()
    while task not in seen:
        seen.add(task)
        found = find(task)
        if not found or found.state != STOPPED:
            return False
        if not found.cause:
            return True
        task = found.cause
    return False


def describe_exit(code: int) -> str:
    """Return `exit 1`, or `killed by SIGKILL` for Popen's negative codes."""
    if code >= 0:
        return "exit {}".format(code)
    return "killed by {}".format(signal_name(-code))


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; `signal 70` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
