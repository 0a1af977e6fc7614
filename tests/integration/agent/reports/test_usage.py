"""CPU time and memory of real processes, and the GPUs of a fake nvidia-smi."""

from __future__ import annotations

import os
import secrets

import pytest
from support.builders import end_processes, eventually, start_python
from support.waiting import until

from tfdeploy.agent.machine import process
from tfdeploy.agent.machine.devices.nvidia import GpuSampler
from tfdeploy.agent.reports import usage
from tfdeploy.agent.reports.usage import HostTable, ProcessTable

SLEEP = "import time; print('sleeps', flush=True); time.sleep(60)"
WORK = "import time\nwhile time.process_time() < 0.3: pass\n"
LARGE = "x = bytearray(64 << 20)\n"
# A process whose environment has the mark only after exec, as a task that its supervisor forks.
LATE = f"""
import os, sys
print('starts', flush=True)
sys.stdin.readline()
words = [sys.executable, '-S', '-c', {SLEEP!r}]
os.execve(sys.executable, words, {{'{process.MARK}': sys.argv[1]}})
"""


@pytest.fixture
def run():
    """A run that no other process of the machine belongs to."""
    return secrets.token_hex(8)


@pytest.fixture
def start(run):
    started = []

    def start_process(task, code, run=run, **more):
        mark = process.mark("p", run, task)
        more.setdefault("env", {**os.environ, process.MARK: mark})
        started.append(start_python(code, mark, **more))
        return started[-1]

    yield start_process
    end_processes(started)


def test_each_task_has_the_cpu_seconds_and_the_memory_of_its_processes(start, run):
    start("worker:0", LARGE + WORK + SLEEP)
    start("worker:0", WORK + SLEEP)
    start("ps:0", SLEEP)
    start("worker:0", SLEEP, run="another")
    used = ProcessTable("p", run).read()
    assert set(used) == {"worker:0", "ps:0"}
    assert used["worker:0"][0] >= 0.58
    assert used["worker:0"][1] - used["ps:0"][1] > 64 << 20


def test_processes_that_come_and_go_are_found(start, run):
    table = ProcessTable("p", run)
    assert table.read() == {}
    first = start("worker:0", SLEEP)
    assert set(table.read()) == {"worker:0"}
    start("worker:1", SLEEP)
    first.kill()
    first.wait()
    assert set(table.read()) == {"worker:1"}


def test_a_process_that_gets_its_mark_late_is_found(start, run):
    table = ProcessTable("p", run)
    late = start("worker:0", LATE, env=dict(os.environ), stdin=-1)
    table.read()
    late.stdin.write("\n")
    late.stdin.close()
    until(lambda: process.MARK.encode() in process.read(late.pid, "environ"), "the exec")
    assert set(table.read()) == {"worker:0"}


def test_the_host_uses_memory_and_cpu_time(no_gpu):
    table = HostTable()
    first, second = table.read(), table.read()
    assert 0 < first.used_bytes < first.total_bytes
    assert first.cpus >= 1
    assert second.at > first.at
    assert second.busy_s >= first.busy_s > 0
    assert second.gpus == []
    table.close()


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def fake_nvidia_smi(folder, monkeypatch, script):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho called >> {folder}/calls\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus_are_sampled_beside_the_caller(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, monkeypatch, 'case "$1" in --query-gpu=*) echo "0, 97, 1, 2";; esac')
    sampler = GpuSampler()
    assert sampler.read() == []
    assert eventually(lambda: [gpu.busy_percent for gpu in sampler.read()] == [97.0])
    for _ in range(50):
        sampler.read()
    assert (tmp_path / "calls").read_text() == "called\n"  # the next call is due in seconds
    sampler.close()


def test_an_nvidia_smi_that_hangs_delays_nothing_and_is_ended(tmp_path, monkeypatch):
    fake_nvidia_smi(tmp_path, monkeypatch, "exec sleep 600")
    sampler = GpuSampler()
    assert [sampler.read() for _ in range(3)] == [[], [], []]
    hanging = sampler._process
    sampler.close()
    assert hanging.returncode == -9


# Counters of the whole host

NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:  700      10    0    0    0     0          0         0     700      10    0    0
  eth0:1000       5    0    0    0     0          0         0     20       1    0    0
"""


def test_bytes_of_all_interfaces_are_added_up(tmp_path):
    (tmp_path / "dev").write_text(NET)
    assert usage.network_bytes(str(tmp_path / "dev")) == (1700, 720)


def test_busy_seconds_count_all_processes_of_the_host(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 999 4 5 6 70 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert usage.cpu_busy_s(str(tmp_path / "stat")) == pytest.approx(165 * usage.TICK_S)
