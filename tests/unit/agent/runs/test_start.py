"""Everything is checked before any task starts, and each refusal says what to do."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from support.builders import make_heartbeat_settings, make_launch
from support.refusals import start_refusal
from support.releases import write_manifest

from tfdeploy.agent import paths
from tfdeploy.agent.machine import guard, leases, lock
from tfdeploy.agent.runs import start_checks


def test_a_missing_release_is_refused(release):
    assert start_refusal(release="gone") == (
        "release gone is not on this host",
        "send it with tfdeploy push",
    )


def test_a_missing_data_set_is_refused(release):
    shutil.copytree(release, release.parent / "b-1")
    write_manifest(release.parent / "b-1")
    assert start_refusal(data={"b": "b-1", "data/a": "data-a-1"}) == (
        "data set data/a (data-a-1) is not on this host",
        "send it with tfdeploy push",
    )


def test_a_release_that_was_changed_on_the_host_is_refused(release):
    (release / "run").write_text("#!/bin/sh\nrm -rf ~\n")
    assert start_refusal() == (
        "release f00d was changed on this host: run",
        "tfdeploy push sends it again",
    )


def test_a_task_that_is_already_running_is_refused(release):
    task_dir = paths.task("p", "r", "worker:0")
    os.makedirs(task_dir)
    task_lock = lock.acquire(task_dir)
    assert start_refusal() == (
        "worker:0 of run r is already running",
        "see it with tfdeploy status --run r, or stop it with tfdeploy stop --run r",
    )
    os.close(task_lock)


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_a_taken_port_is_reported_with_its_holder(release, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        message, hint = start_refusal(port=port)
    assert message.startswith(f"port {port} for worker:0 is taken by pid {os.getpid()} (")
    assert hint == f"stop that process; {leases.WAIT}; or give the host other ports"


def test_the_runs_own_port_is_checked_only_on_the_chiefs_host(release):
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        message, _ = start_refusal(heartbeat=make_heartbeat_settings(port=port))
        assert message.startswith(f"port {port} for worker:0 is taken")
        ps, _ = start_refusal(job="ps", argv=["gone"], heartbeat=make_heartbeat_settings(port=port))
    assert ps == "the program gone of ps:0 is not on this host"


@pytest.mark.parametrize("program", ["no-such-program", "/no/program", "./gone"])
def test_a_missing_program_is_refused(release, program):
    assert start_refusal(argv=[program]) == (
        f"the program {program} of worker:0 is not on this host",
        "give its absolute path, or set the host's python",
    )


def test_a_program_of_the_release_must_be_executable(release):
    assert start_refusal(argv=["./run"]) == (
        "the program ./run of worker:0 is not executable",
        "chmod +x run in the source; then push again",
    )
    (release / "run").chmod(0o755)
    start_checks.check_program(make_launch(argv=["./run"]), os.fspath(release))


def test_a_program_of_the_host_must_be_executable(release, tmp_path):
    program = tmp_path / "my run"
    program.touch()
    assert start_refusal(argv=[os.fspath(program)]) == (
        f"the program {program} of worker:0 is not executable",
        f"chmod +x '{program}'",
    )


def test_a_program_is_searched_in_the_launchs_own_path(release, tmp_path):
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    start_checks.check_program(make_launch(argv=["mine"], env={"PATH": os.fspath(tmp_path)}), "/")
    assert start_refusal(argv=["mine"])[0] == "the program mine of worker:0 is not on this host"


UNGUARDED = (
    'network = "open" in hosts.toml lets everybody who reaches the hosts connect to the tasks, and '
    "run programs as your user"
)


def test_a_host_for_whose_processor_there_is_no_library_is_refused(release):
    processor = os.uname().machine
    assert start_refusal(network="guarded") == (
        "the ports of its tasks cannot be guarded: there is no library for the processor "
        + processor,
        UNGUARDED,
    )


def test_a_host_that_cannot_load_the_library_is_refused(release):
    library = Path(guard.library())
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    message, hint = start_refusal(network="guarded")
    assert message.startswith(f"the ports of its tasks cannot be guarded: {library}: ")
    assert hint == UNGUARDED


def test_an_open_network_needs_no_library(release):
    assert start_checks.guard_refusal("open") is None
