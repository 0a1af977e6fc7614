"""Faults 9 and 10: a script that cannot start is reported with its last lines; nothing is left."""

from __future__ import annotations

import time

import pytest
from support.training import STUB

from faults import table

pytestmark = pytest.mark.slow
BROKEN = "import no_such_module\n"


def failed_start(run) -> str:
    """Push and start; check that it fails and leaves no process; return the error message."""
    run.ok("push")
    done = run.tf("start")
    assert done.returncode == 1, done.stdout
    assert run.processes() == {}
    return done.stderr


def test_a_script_that_fails_at_import_shows_its_traceback_and_is_not_restarted(training):
    run = training("train_async.py")
    (run.folder / "train.py").write_text(BROKEN)
    started_at = time.monotonic()
    message = failed_start(run)
    table.record(
        "9 exit 1 at import: start has named it and stopped all", time.monotonic() - started_at
    )
    assert "ModuleNotFoundError: No module named 'no_such_module'" in message
    assert "before it was ever READY" in message
    assert set(run.restarts().values()) == {0}


def test_a_script_that_never_opens_its_port_is_reported_after_ready_timeout_s(training):
    run = training(STUB, "--hold", "--deaf", "worker:1", training={"ready_timeout_s": 4})
    started_at = time.monotonic()
    message = failed_start(run)
    elapsed_s = time.monotonic() - started_at
    table.record("10 a port that never opens, ready_timeout_s = 4: named, all stopped", elapsed_s)
    assert "worker:1 on here: not READY within 4 s" in message
    assert "NOT_LISTENING" in message


def test_a_task_that_answers_with_another_name_is_never_ready(training):
    """That `start` reports it is tested in integration/test_commands."""
    run = training(STUB, "--hold", "--impostor", "worker:1")
    run.ok("push")
    with run.start_command("start") as start:
        run.until(lambda: run.runs and [*run.states().values()].count("READY") == 2, "the others")
        run.until(lambda: run.status()["worker:1"]["health"] == "WRONG_TASK", "the wrong answer")
        # This command takes longer than the supervisor's next check of the port.
        assert run.status()["worker:1"]["state"] == "RUNNING"
        assert start.process.poll() is None, start.output
        start.interrupt()
    assert run.processes() == {}
