"""The suite itself: no test depends on what started it, stands still or is skipped unnoticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import starter

TESTS = Path(__file__).parents[1]
HOSTILE = """
    trap '' INT QUIT HUP TERM CHLD
    umask 077
    ulimit -S -f 1000000 -n 64 -s 1024
    exec 0<&- "$@"
"""
EXPORTED = (
    *("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "PYTHONWARNINGS", "TFDEPLOY_TASK", "SSH_AUTH_SOCK"),
    *("GIT_DIR", "LC_ALL", "LC_MESSAGES", "XDG_CONFIG_HOME", "USER", "SHELL", "COLUMNS"),
)


def pytest_on(
    tmp_path: Path, probe: str, workers: int, *, hostile: bool = False, **variables: str
) -> str:
    """Run a probe with the suite's conftest and return what pytest prints.

    Its folder is not beside those of other runs: at its end pytest would delete the oldest of them.
    """
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"-n{workers}"]
    command += [f"--basetemp={tmp_path / probe}", str(TESTS / "support" / f"{probe}.py")]
    environment = {**os.environ, **variables}
    if hostile:
        command = ["setsid", "--wait", "bash", "-c", HOSTILE, "bash", *command]
        environment |= dict.fromkeys(EXPORTED, "HOSTILE") | {"HOME": "/proc/none"}
    ran = subprocess.run(command, cwd=TESTS.parent, env=environment, stdout=subprocess.PIPE)
    return ran.stdout.decode()


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_starter_ignores_limits_and_exports_does_not_reach_a_test(workers, tmp_path):
    out = pytest_on(tmp_path, "probe_inherited", workers, hostile=True)
    assert "3 passed" in out, out


def test_what_a_soak_asks_for_reaches_the_tests():
    asked = set(re.findall(r"TFDEPLOY_\w+", (TESTS / "soak.py").read_text()))
    assert len(asked) == 6
    assert [name for name in asked if not starter.KEPT.fullmatch(name)] == []


def test_a_test_that_stands_still_ends_with_its_stacks_and_processes_and_ci_skips_none(
    tmp_path,
):
    out = pytest_on(tmp_path, "probe_standing_still", 1, CI="true")
    assert "2 failed, 1 passed, 1 error" in out, out
    assert "skipped, which CI forbids" in out
    assert "it has not ended after" in out
    assert "in wait_in_a_thread" in out
    assert ": sleep 77" in out
