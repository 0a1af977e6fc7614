"""Fault 8: a supervisor is killed or frozen; its task is found, reported, and ended.

test_tasks_killed.py does it to a training with TensorFlow, which continues.
"""

from __future__ import annotations

import os
import signal

import pytest
from support.sshd import alive
from support.training import STUB

from faults.fault import Fault

pytestmark = pytest.mark.slow
TASKS = ["ps:0", "worker:0", "worker:1"]


@pytest.mark.parametrize("task", TASKS)
def test_status_reports_a_killed_supervisor_and_stop_leaves_no_process(training, task):
    run = training(STUB, "--hold").start()
    os.kill(run.supervisor(task), signal.SIGKILL)
    run.until(lambda: run.status()[task]["state"] == "LOST", "LOST")
    assert f"{task}" in run.ok("stop")
    assert run.processes() == {}
    assert {task["state"] for task in run.status().values()} == {"STOPPED"}


def test_a_frozen_supervisor_ends_no_task_and_stop_leaves_no_process(training):
    run = training(STUB, "--hold").start()
    pids = {task: run.pid(task) for task in TASKS}
    os.kill(run.supervisor("worker:1"), signal.SIGSTOP)
    assert {task: fields["pid"] for task, fields in run.status().items()} == pids
    assert all(alive(pid) for pid in pids.values())
    run.ok("stop")
    assert run.processes() == {}


def test_tasks_stop_by_themselves_when_their_chief_is_lost(training):
    run = training("train_stub.py", "--steps=1000000", training={"orphan_timeout_s": 10}).start()
    run.wait_for_checkpoint()
    fault = Fault(run)
    os.kill(run.supervisor("worker:0"), signal.SIGKILL)
    others = ("ps:0", "worker:1")
    run.until(lambda: {run.state(task)["state"] for task in others} == {"STOPPED"}, "their end")
    fault.wait_for_detection("ps:0", "STOPPED")
    assert all("no message from worker:0" in run.state(task)["reason"] for task in others)
    # Their supervisors have released everything, and try to report it for a while to a chief that
    # may be back.
    assert all(" supervise " in command for command in run.processes().values())
    fault.record("8 kill -9 of the chief's supervisor, orphan_timeout_s = 10: all others ended")
