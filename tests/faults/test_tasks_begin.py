"""Faults 9 and 10: a script that can't begin is named with its last words, and nothing is left."""

from __future__ import annotations

import time

import pytest

from faults import table
from faults.training import STUB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BROKEN = "import tensorflow as tf\nimport no_such_module\n"


def refused(run) -> str:
    """What a start says that must fail, and leave nothing behind."""
    run.ok("push")
    done = run.tf("start")
    assert done.returncode == 1, done.stdout
    assert run.processes() == {}
    return done.stderr


def test_a_script_that_fails_at_import_shows_its_traceback_and_wastes_no_restart(training):
    run = training("train_async.py")
    (run.folder / "train.py").write_text(BROKEN)
    began = time.monotonic()
    said = refused(run)
    table.record("9 exit 1 at import: start has named it and stopped all", time.monotonic() - began)
    assert "ModuleNotFoundError: No module named 'no_such_module'" in said
    assert "before it was ever READY" in said
    assert set(run.restarts().values()) == {0}


def test_a_script_that_never_opens_its_port_is_named_when_the_time_is_over(training):
    run = training(STUB, "--hold", "--deaf", "worker:1", training={"ready_timeout_s": 4})
    began = time.monotonic()
    said = refused(run)
    figure = time.monotonic() - began
    table.record("10 a port that never opens, ready_timeout_s = 4: named, all stopped", figure)
    assert "worker:1 on here: it was not ready within 4 s" in said
    assert "NOT_LISTENING" in said


def test_a_task_that_answers_with_another_name_is_never_ready(training):
    run = training(STUB, "--hold", "--impostor", "worker:1", training={"ready_timeout_s": 4})
    said = refused(run)
    assert "worker:1 on here" in said
    assert "WRONG_TASK" in said
