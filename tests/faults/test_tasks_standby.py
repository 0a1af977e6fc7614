"""With standby processes, real trainings recover in them: chiefs, workers and ps, in each API."""

from __future__ import annotations

import signal

import pytest
from support.training import Training, steps

from faults.fault import Fault
from tfdeploy.agent.machine import process

pytestmark = pytest.mark.slow
USED = "goes on in the standby process"
RESTART = {"standby": True, "max_delay_s": 1, "window_s": 15}


def standbys(run: Training) -> dict[str, int]:
    """Return the standby process of each task that has one that waits."""
    waiting = [pid for pid in run.processes() if process.read(pid, "comm") == b"standby\n"]
    marks = {pid: process.read_mark(pid) for pid in waiting}
    return {mark[2]: pid for pid, mark in marks.items() if mark}


def wait_for_further_steps(run: Training, fault: Fault) -> None:
    count = len(steps(fault.log_since(run.chief)))
    run.until(lambda: len(steps(fault.log_since(run.chief))) > count, "further steps")


@pytest.mark.parametrize(
    ("script", "tasks"),
    [
        ("train_async.py", ["worker:1", "worker:0", "ps:0"]),
        ("train_ps_strategy.py", ["chief:0", "worker:0"]),
        ("train_mirrored.py", ["worker:1"]),
    ],
)
def test_training_recovers_in_the_standby_process(tmp_path, script, tasks):
    run = Training.create(script, tmp_path, "--steps=1000000", "--save_steps=20", restart=RESTART)
    try:
        run.start()
        for task in tasks:
            run.until(lambda: len(standbys(run)) == len(run.tasks), "the standby processes")
            run.wait_for_checkpoint()
            waiting, fault = standbys(run)[task], Fault(run)
            run.send_signal(signal.SIGKILL, task)
            fault.wait_for_detection(task, "BACKOFF")
            run.until(lambda: set(run.states().values()) == {"READY"}, "all READY")
            assert run.pid(task) == waiting
            assert USED in fault.log_since(task)
            assert "Traceback" not in fault.log_since(task)
            wait_for_further_steps(run, fault)
        run.stop()
        assert run.processes() == {}
    finally:
        run.end()
