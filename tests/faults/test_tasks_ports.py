"""Faults 20 to 22: who holds a port or a GPU is named, and of two starts one wins whole."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from integration.sshd import free_ports

from faults.training import STUB, patiently
from tfdeploy.agent import process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LISTEN = """
import socket, sys, time
held = socket.create_server(("", int(sys.argv[1])))
time.sleep(3000)
"""
GPU = "GPU 0: Pretended (UUID: GPU-{}-{})"


@contextmanager
def listening(port: int, **env: str) -> Iterator[int]:
    """Somebody else has the port; its pid."""
    held = subprocess.Popen([sys.executable, "-c", LISTEN, str(port)], env={**os.environ, **env})
    try:
        patiently(lambda: process.holder(port) == held.pid, "the stranger's port")
        yield held.pid
    finally:
        held.kill()
        held.wait()


def refused(run) -> str:
    """What a start says that must fail before anything has begun."""
    before = run.runs
    done = run.tf("start")
    assert done.returncode == 1, done.stdout
    assert (run.processes(), run.runs) == ({}, before)
    return done.stderr


def test_a_port_that_a_stranger_has_is_refused_with_his_pid_and_name(training):
    run = training(STUB, "--hold")
    run.ok("push")
    port = run.hosts["here"]["ports"][0]
    with listening(port) as pid:
        said = refused(run)
    assert f"port {port} for ps:0 is taken by pid {pid} ({sys.executable}" in said
    run.ok("start")


def test_what_an_earlier_run_left_on_the_port_is_named_and_its_sweep_offered(training):
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
        assert process.holder(port) is None
    run.ok("start")


@pytest.mark.parametrize("attempt", range(2))
def test_of_two_starts_at_the_same_moment_one_wins_whole(training, attempt):
    ports = free_ports(4)
    rivals = [training(STUB, "--hold", host={"ports": ports}) for _ in range(2)]
    for run in rivals:
        run.ok("push")
    with rivals[0].begun("start") as first, rivals[1].begun("start") as second:
        exits = [each.process.wait(timeout=100) for each in (first, second)]
    said = [first.said, second.said]
    assert sorted(exits) == [0, 1], said
    winner, loser = exits.index(0), exits.index(1)
    assert set(rivals[winner].states().values()) == {"READY"}
    assert (rivals[loser].processes(), rivals[loser].runs) == ({}, [])
    (won,) = rivals[winner].runs
    assert f"of run {won} of {rivals[winner].name}, started by {getpass.getuser()}" in said[loser]


def test_two_starts_of_the_same_folder_at_the_same_moment_leave_one_run(training):
    run = training(STUB, "--hold")
    run.ok("push")
    with run.begun("start") as first, run.begun("start") as second:
        exits = [each.process.wait(timeout=100) for each in (first, second)]
    assert sorted(exits) == [0, 1], [first.said, second.said]
    (won,) = run.runs
    assert f"of run {won}" in (first, second)[exits.index(1)].said
    assert set(run.states().values()) == {"READY"}


def test_runs_with_free_ports_go_side_by_side_and_end_apart(training):
    runs = [training(STUB, "--hold", host={"ports": "auto"}).start() for _ in range(2)]
    runs[0].ok("stop")
    assert runs[0].processes() == {}
    assert {told["health"] for told in runs[1].status().values()} == {"READY"}


def test_a_gpu_belongs_to_one_run_until_its_end(training, tmp_path, monkeypatch):
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\necho '{GPU.format(os.getpid(), tmp_path.name)}'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    host = {"gpus": 1, "ports": "auto"}
    one, other = (training(STUB, "--hold", tasks={"workers": 1}, host=host) for _ in range(2))
    one.start()
    other.ok("push")
    said = refused(other)
    assert f"is taken by worker:0 of run {one.runs[0]} of {one.name}" in said
    assert "GPU GPU-" in said
    one.ok("stop")
    other.ok("start")
