"""What the real processes of a run use: CPU seconds, found by their mark, and their TCP bytes."""

from __future__ import annotations

import os
import secrets

import pytest
from support.builders import end_processes, eventually, start_python

from tfdeploy.agent.machine import listeners, process
from tfdeploy.agent.reports import usage

WORK = "import time\nwhile time.process_time() < 0.3: pass\n"
SLEEP = "import time; print('sleeps', flush=True); time.sleep(60)"
# A child works and ends; its parent has waited for it and still lives.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {WORK!r}]); {SLEEP}"
# A server that accepts a connection, and answers each byte with three.
SERVER = """
import socket
server = socket.create_server(("{address}", 0), family={family})
print(server.getsockname()[1], flush=True)
connection = server.accept()[0]
while True:
    connection.sendall(3 * connection.recv(1 << 16))
"""
CLIENT = """
import socket, time
connection = socket.create_connection(("{address}", {port}))
left = 3 * {size}
connection.sendall({size} * b"x")
while left:
    left -= len(connection.recv(1 << 16))
print("received", flush=True)
time.sleep(60)
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
    load = usage.measure_load("p", run)
    assert set(load.cpu_s) == {"ps:0", "worker:1"}
    assert load.cpu_s["worker:1"] >= 0.58
    assert load.cpu_s["ps:0"] < 0.3


def test_cpu_seconds_of_ended_children_count(start, run):
    start("worker:0", PARENT)
    assert usage.measure_load("p", run).cpu_s["worker:0"] >= 0.29


def test_a_task_that_has_ended_is_not_reported(start, run):
    ended = start("worker:0", SLEEP)
    ended.kill()
    assert eventually(lambda: usage.measure_load("p", run).cpu_s == {})


def test_the_clock_and_the_busy_seconds_of_the_host_rise(run):
    first, second = (usage.measure_load("p", run) for _ in range(2))
    assert first.at < second.at
    assert 0 < first.busy_s <= second.busy_s


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", "socket.AF_INET"),
                                                  ("::1", "socket.AF_INET6")])  # fmt: skip
def test_the_tcp_bytes_of_each_task_are_counted_and_no_others(start, run, address, family):
    size = 10_000
    server = start("ps:0", SERVER.format(address=address, family=family))
    port = int(server.first_line)
    stranger = start("ps:0", SERVER.format(address=address, family=family), run="another")
    client = start("worker:0", CLIENT.format(address=address, port=port, size=size))
    start("worker:0", CLIENT.format(address=address, port=int(stranger.first_line), size=5),
          run="another")  # fmt: skip
    assert client.first_line == "received"

    def moved():
        found = usage.measure_load("p", run).connections
        return {each.task: (each.received, each.sent) for each in found if each.received}

    expected = {"ps:0": (size, 3 * size), "worker:0": (3 * size, size)}
    assert eventually(lambda: set(moved()) == set(expected))
    # A connection's first packet may count as a byte.
    for task, bytes_moved in expected.items():
        assert moved()[task] == pytest.approx(bytes_moved, abs=2)


def test_a_kernel_without_the_counters_leaves_the_connections_unknown(monkeypatch, run):
    monkeypatch.setattr(listeners, "NETLINK_SOCK_DIAG", 1 << 20)
    assert usage.measure_load("p", run).connections is None
