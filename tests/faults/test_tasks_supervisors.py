"""Fault 8: a supervisor is killed or frozen. What it kept is found, told, and ended."""

from __future__ import annotations

import os
import signal

import pytest
from integration.sshd import alive

from faults.fault import Fault
from faults.training import STUB, patiently, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TASKS = ["ps:0", "worker:0", "worker:1"]


def test_a_killed_supervisor_takes_its_task_along_and_the_others_go_on(training):
    run = training("train_async.py", "--steps=1000000").start()
    run.trains()
    fault, pid = Fault(run), run.pid("worker:1")
    os.kill(run.supervisor("worker:1"), signal.SIGKILL)
    patiently(lambda: not alive(pid), "the end of its task")
    seen = run.status()["worker:1"]
    assert (seen["state"], seen["reason"]) == ("LOST", "its supervisor was killed")
    fault.went_on(len(steps(fault.said("worker:0"))))
    assert fault.restarted() == set()
    fault.record("8 kill -9 of a worker's supervisor, the others")
    run.ok("stop")
    assert run.processes() == {}


def test_a_run_whose_ps_lost_its_supervisor_is_resumed_from_its_checkpoint(training):
    run = training("train_async.py", "--steps=1000000").start()
    run.trains()
    fault = Fault(run)
    os.kill(run.supervisor("ps:0"), signal.SIGKILL)
    patiently(lambda: run.status()["ps:0"]["state"] == "LOST", "LOST")
    fault.mended()
    run.ok("resume")
    fault.restored()
    assert fault.steps_lost <= 200
    fault.record("8 kill -9 of a ps's supervisor, then resume")


@pytest.mark.parametrize("task", TASKS)
def test_whichever_supervisor_is_killed_status_names_it_and_stop_leaves_nothing(training, task):
    run = training(STUB, "--hold").start()
    os.kill(run.supervisor(task), signal.SIGKILL)
    patiently(lambda: run.status()[task]["state"] == "LOST", "LOST")
    assert f"{task}" in run.ok("stop")
    assert run.processes() == {}
    assert {task["state"] for task in run.status().values()} == {"STOPPED"}


def test_a_frozen_supervisor_ends_nobody_and_stop_leaves_nothing_of_it(training):
    run = training(STUB, "--hold").start()
    pids = {task: run.pid(task) for task in TASKS}
    os.kill(run.supervisor("worker:1"), signal.SIGSTOP)
    assert {task: told["pid"] for task, told in run.status().items()} == pids
    assert all(alive(pid) for pid in pids.values())
    run.ok("stop")
    assert run.processes() == {}


def test_tasks_whose_chief_was_lost_retire_by_themselves(training):
    run = training("train_async.py", "--steps=1000000", training={"orphan_timeout_s": 10}).start()
    run.trains()
    fault = Fault(run)
    os.kill(run.supervisor("worker:0"), signal.SIGKILL)
    others = ("ps:0", "worker:1")
    patiently(lambda: {run.state(task)["state"] for task in others} == {"STOPPED"}, "their end")
    fault.detected("ps:0", "STOPPED")
    assert all("nothing was heard of worker:0" in run.state(task)["reason"] for task in others)
    # Their supervisors hold nothing any more, and say so for a while to a chief that may be back.
    assert all(" supervise " in command for command in run.processes().values())
    fault.record("8 kill -9 of the chief's supervisor, orphan_timeout_s = 10: all others ended")
