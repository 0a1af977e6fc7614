"""CPU seconds of real processes, found by their mark, and bytes of all network interfaces."""

from __future__ import annotations

import os
import secrets

import pytest
from unit.builders import end_processes, eventually, start_python

from tfdeploy.agent.machine import metrics, process

WORK = "import time\nwhile time.process_time() < 0.3: pass\n"
SLEEP = "import time; print('sleeps', flush=True); time.sleep(60)"
# A child works and ends; its parent has waited for it and still lives.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {WORK!r}]); {SLEEP}"
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:  700      10    0    0    0     0          0         0     700      10    0    0
  eth0:1000       5    0    0    0     0          0         0     20       1    0    0
"""


@pytest.fixture
def run():
    """A run that no other process of the machine belongs to."""
    return secrets.token_hex(8)


@pytest.fixture
def start(run):
    """Start Python processes of tasks of the run."""
    started = []

    def start_process(task, code, run=run):
        mark = process.mark("p", run, task)
        started.append(start_python(code, env={**os.environ, process.MARK: mark}))
        return started[-1]

    yield start_process
    end_processes(started)


def test_each_task_has_the_cpu_seconds_of_its_processes(start, run):
    for _ in range(2):
        start("worker:1", WORK + SLEEP)
    start("ps:0", SLEEP)
    start("worker:1", WORK + SLEEP, run="another")
    load = metrics.host_load("p", run)
    assert set(load.cpu_s) == {"ps:0", "worker:1"}
    assert load.cpu_s["worker:1"] >= 0.58
    assert load.cpu_s["ps:0"] < 0.3


def test_cpu_seconds_of_ended_children_count(start, run):
    start("worker:0", PARENT)
    assert metrics.host_load("p", run).cpu_s["worker:0"] >= 0.29


def test_a_task_that_has_ended_is_not_reported(start, run):
    ended = start("worker:0", SLEEP)
    ended.kill()
    assert eventually(lambda: metrics.host_load("p", run).cpu_s == {})


def test_clock_and_bytes_never_decrease(run):
    first, second = (metrics.host_load("p", run) for _ in range(2))
    assert first.at < second.at
    assert first.received <= second.received
    assert first.sent <= second.sent


def test_bytes_of_all_interfaces_are_added_up(tmp_path):
    (tmp_path / "dev").write_text(NET)
    assert metrics.network_bytes(str(tmp_path / "dev")) == (1700, 720)


def test_busy_seconds_count_all_processes_of_the_host(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert metrics.cpu_busy_s(str(tmp_path / "stat")) == pytest.approx(165 * metrics.TICK_S)
    assert metrics.host_load("p", "r").busy_s > 0
