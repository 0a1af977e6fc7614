"""Runs and releases are removed completely, except those that are live, in use or elsewhere."""

from __future__ import annotations

import os
import secrets

from support.builders import start_python
from support.host_runs import create_run
from support.refusals import reasons

from tfdeploy.agent.machine import process
from tfdeploy.agent.runs.remove import remove

SLEEP = "import time; print(flush=True); time.sleep(60)"


# Not removed


def test_a_run_is_not_removed_while_processes_of_a_lost_task_are_running(root):
    run = secrets.token_hex(8)  # the mark of no other process of the machine
    create_run(run, "ps:0", state="READY")
    own = {**os.environ, process.MARK: process.mark("p", run, "ps:0")}
    left = start_python(SLEEP, env=own)
    try:
        why = f"processes of its ps:0 still run: stop them with tfdeploy stop --run {run}"
        assert reasons(remove("p", [run], [], [])) == {run: why}
    finally:
        left.kill()
        left.wait()
        left.stdout.close()
    assert remove("p", [run], [], []).kept == []
