"""What a run's tasks cost this host: real processes, found by their mark; bytes by interface."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import load, process
from unit.made import eventually, python

WORK = "import time\nwhile time.process_time() < 0.3: pass\n"
SLEEP = "import time; print('sleeps', flush=True); time.sleep(60)"
# A child that works and ends: its parent has waited for it, and lives.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {WORK!r}]); {SLEEP}"
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:  700      10    0    0    0     0          0         0     700      10    0    0
  eth0:1000       5    0    0    0     0          0         0     20       1    0    0
"""


@pytest.fixture
def start(tmp_path):
    """Start a Python process of a task of the run."""
    started = []

    def one(task, code, run=tmp_path.name):
        mark = process.mark("p", run, task)
        started.append(python(code, env={**os.environ, process.MARK: mark}))
        return started[-1]

    yield one
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def test_each_task_has_the_cpu_seconds_of_its_processes(start, tmp_path):
    for _ in range(2):
        start("worker:1", WORK + SLEEP)
    start("ps:0", SLEEP)
    start("worker:1", WORK + SLEEP, run="another")
    told = load.load("p", tmp_path.name)
    assert set(told["cpu_s"]) == {"ps:0", "worker:1"}
    assert told["cpu_s"]["worker:1"] >= 0.58
    assert told["cpu_s"]["ps:0"] < 0.3


def test_what_a_child_used_that_has_ended_counts(start, tmp_path):
    start("worker:0", PARENT)
    assert load.load("p", tmp_path.name)["cpu_s"]["worker:0"] >= 0.29


def test_a_task_that_has_ended_is_not_told(start, tmp_path):
    ended = start("worker:0", SLEEP)
    ended.kill()
    assert eventually(lambda: load.load("p", tmp_path.name)["cpu_s"] == {})


def test_its_clock_goes_on(tmp_path):
    first, second = (load.load("p", tmp_path.name) for _ in range(2))
    assert first["at"] < second["at"]
    assert first["received"] <= second["received"]
    assert first["sent"] <= second["sent"]


def test_bytes_are_those_of_all_interfaces(tmp_path):
    (tmp_path / "dev").write_text(NET)
    assert load.traffic(str(tmp_path / "dev")) == (1700, 720)


def test_a_host_is_busy_with_all_that_it_does(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert load.busy_s(str(tmp_path / "stat")) == pytest.approx(165 * load.TICK_S)
    assert load.load("p", "r")["busy_s"] > 0
