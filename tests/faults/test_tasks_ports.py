"""Faults 20 to 22: the holder of a port or GPU is named, and of two starts exactly one wins."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from support.nvidia_smi import StubNvidiaSmi
from support.ports import free_ports
from support.training import STUB
from support.waiting import until

from tfdeploy.agent.machine import process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
LISTEN = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
time.sleep(3000)
"""


@contextmanager
def listening(port: int, **env: str) -> Iterator[int]:
    """Listen on the port in another process, and yield its pid."""
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(port)], env={**os.environ, **env}
    )
    try:
        until(lambda: process.port_holder(port) == listener.pid, "the other process's port")
        yield listener.pid
    finally:
        listener.kill()
        listener.wait()


def refused_start(run) -> str:
    """Check that `start` fails before any task starts; return its error message."""
    before = run.runs
    done = run.tf("start")
    assert done.returncode == 1, done.stdout
    assert (run.processes(), run.runs) == ({}, before)
    return done.stderr


def test_a_port_held_by_another_process_is_refused_with_its_pid_and_command(training):
    run = training(STUB, "--hold")
    run.ok("push")
    port = run.hosts["here"]["ports"][0]
    with listening(port) as pid:
        message = refused_start(run)
    assert f"port {port} for ps:0 is taken by pid {pid} ({sys.executable}" in message
    run.ok("start")


def test_a_process_of_an_earlier_run_on_the_port_is_named_with_the_stop_command(training):
    run = training(STUB, "--hold").start()
    run.ok("stop")
    (old,) = run.runs
    port = run.hosts["here"]["ports"][1]
    with listening(port, TFDEPLOY_TASK=f"{run.name}/{old}/worker:0"):
        done = run.tf("start")
        assert done.returncode == 1
        assert run.runs == [old]
        assert f"worker:0 of run {old} of {run.name}" in done.stderr
        assert f"tfdeploy stop --run {old}" in done.stderr
        run.ok("stop", "--run", old)
        assert process.port_holder(port) is None
    run.ok("start")


def test_of_two_starts_at_the_same_moment_exactly_one_wins(training):
    ports = free_ports(4)
    rivals = [training(STUB, "--hold", host={"ports": ports}) for _ in range(2)]
    for run in rivals:
        run.ok("push")
    with rivals[0].start_command("start") as first, rivals[1].start_command("start") as second:
        exits = [command.process.wait() for command in (first, second)]
    outputs = [first.output, second.output]
    assert sorted(exits) == [0, 1], outputs
    winner, loser = exits.index(0), exits.index(1)
    assert set(rivals[winner].states().values()) == {"READY"}
    assert (rivals[loser].processes(), rivals[loser].runs) == ({}, [])
    (run_id,) = rivals[winner].runs
    assert (
        f"of run {run_id} of {rivals[winner].name}, started by {getpass.getuser()}"
        in outputs[loser]
    )


def test_two_starts_of_the_same_folder_at_the_same_moment_leave_one_run(training):
    run = training(STUB, "--hold")
    run.ok("push")
    with run.start_command("start") as first, run.start_command("start") as second:
        exits = [command.process.wait() for command in (first, second)]
    assert sorted(exits) == [0, 1], [first.output, second.output]
    (run_id,) = run.runs
    assert f"of run {run_id}" in (first, second)[exits.index(1)].output
    assert set(run.states().values()) == {"READY"}


def test_runs_with_automatic_ports_run_side_by_side_and_end_independently(training):
    runs = [training(STUB, "--hold", host={"ports": "auto"}).start() for _ in range(2)]
    runs[0].ok("stop")
    assert runs[0].processes() == {}
    runs[1].wait_for_health()


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that gives this machine a number of GPUs."""

    def provide(count):
        stub = StubNvidiaSmi(tmp_path / "bin", count)
        monkeypatch.setenv("PATH", f"{stub.folder}:{os.environ['PATH']}")
        return stub

    return provide


def test_a_gpu_is_leased_to_one_run_until_its_end(training, nvidia_smi):
    nvidia_smi(1)
    host = {"gpus": 1, "ports": "auto"}
    one, other = (training(STUB, "--hold", tasks={"workers": 1}, host=host) for _ in range(2))
    one.start()
    other.ok("push")
    message = refused_start(other)
    assert f"GPU 0 is taken by worker:0 of run {one.runs[0]} of {one.name}" in message
    one.ok("stop")
    other.ok("start")


def test_runs_that_start_at_the_same_moment_get_different_gpus(training, nvidia_smi):
    nvidia_smi(4).use(2, os.getpid())  # as a stranger's process
    host = {"gpus": 4, "ports": "auto"}
    rivals = [training(STUB, "--hold", tasks={"workers": 1}, host=host) for _ in range(3)]
    for run in rivals:
        run.ok("push")
    with ExitStack() as stack:
        starts = [stack.enter_context(run.start_command("start")) for run in rivals]
        assert [each.process.wait() for each in starts] == [0, 0, 0], [s.output for s in starts]
    shown = [run.status()["worker:0"]["gpus"] for run in rivals]
    assert sorted(shown) == [[0], [1], [3]]
    late = training(STUB, "--hold", tasks={"workers": 1}, host=host)
    assert "one of 0-3, chosen at the start" in late.ok("plan")
    late.ok("push")
    message = refused_start(late)
    assert "1 of GPUs 0, 1, 2, 3 is needed, none is free: GPU 0 is taken by worker:0 of" in message
    rivals[0].ok("stop")
    late.ok("start")
    assert late.status()["worker:0"]["gpus"] == shown[0]
