"""What the end of a task's process means. Pure."""

from __future__ import annotations

import signal
from typing import Tuple

from .records import FAILED, STOPPED, SUCCEEDED


def judge(exit_code: int, stopped: bool) -> Tuple[str, str]:
    """The state and the reason for people. What an operator stopped has not failed."""
    if stopped:
        return STOPPED, "as asked, {}".format(named(exit_code))
    if exit_code == 0:
        return SUCCEEDED, "exit 0"
    return FAILED, named(exit_code)


def named(exit_code: int) -> str:
    """`exit 1`, or `killed by SIGKILL` for Popen's negative codes."""
    if exit_code >= 0:
        return "exit {}".format(exit_code)
    try:
        return "killed by {}".format(signal.Signals(-exit_code).name)
    except ValueError:
        return "killed by signal {}".format(-exit_code)
