"""What the end of a process means: succeeded, failed, or stopped as it was asked."""

from __future__ import annotations

import pytest

from tfdeploy.agent import outcome


@pytest.mark.parametrize(
    ("exit_code", "stopped", "state", "reason"),
    [
        (0, False, "SUCCEEDED", "exit 0"),
        (1, False, "FAILED", "exit 1"),
        (127, False, "FAILED", "exit 127"),
        (-9, False, "FAILED", "killed by SIGKILL"),
        (-11, False, "FAILED", "killed by SIGSEGV"),
        (-99, False, "FAILED", "killed by signal 99"),
        (-15, True, "STOPPED", "as asked, killed by SIGTERM"),
        (0, True, "STOPPED", "as asked, exit 0"),
        (1, True, "STOPPED", "as asked, exit 1"),
    ],
)
def test_how_a_process_ended_is_judged(exit_code, stopped, state, reason):
    assert outcome.judge(exit_code, stopped) == (state, reason)
