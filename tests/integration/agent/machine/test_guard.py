"""Ports from which only one user of a host can connect."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile

import pytest
from support.builders import as_unprivileged_user

from tfdeploy.agent.machine import guard, listeners


@pytest.fixture(params=["of a task", "local"])
def held(tmp_path, monkeypatch, request):
    """Hold ports as the unprivileged user; yield the first."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    sockets = []
    monkeypatch.setattr(guard, "_held", sockets)
    monkeypatch.setattr(guard, "_local", [])
    monkeypatch.setattr(guard, "LOWEST", 20_000)  # no other test has a port there
    monkeypatch.setattr(guard, "HIGHEST", 32_767)
    with as_unprivileged_user(tmp_path):
        hold = guard.hold_local_ports if request.param == "local" else hold_ports_of_a_task
        first, _ = hold()
    yield first
    for each in sockets:
        each.close()


def hold_ports_of_a_task():
    with tempfile.TemporaryDirectory() as task_dir:
        return guard.hold_ports(task_dir)


def connect_from(port, listener, *options, address=""):
    with socket.socket() as client:
        for option in options:
            client.setsockopt(socket.SOL_SOCKET, option, 1)
        client.bind((address, port))
        client.connect(listener.getsockname())
        return client.getsockname()[1]


OPTIONS = [
    (), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.2"])
def test_another_user_can_not_connect_from_the_ports(held, options, address):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(OSError, match="Address already in use"),
    ):
        connect_from(held, listener, *options, address=address)


def test_the_same_user_connects_from_a_port_to_several_servers(held, tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
        as_unprivileged_user(tmp_path),
    ):
        for listener in (one, other):
            assert connect_from(held, listener, socket.SO_REUSEPORT) == held


def test_the_ports_of_a_task_are_found_in_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "_hold", lambda first, count: True)
    first, last = guard.hold_ports(str(tmp_path))
    assert guard.read_ports(str(tmp_path)) == (first, last) == (first, first + 127)
    assert set(guard.some_ports((first, last))) < set(range(first, last + 1))
    assert guard.read_ports(str(tmp_path / "other")) is None


def hold_in_another_process():
    code = (
        "from tfdeploy.agent.machine import guard; guard.LOCAL_LOWEST = 63_488\n"
        "print(*guard.hold_local_ports(), flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_all_tasks_of_a_user_have_the_same_local_ports():
    """Also if another program had one of them only while the first task came."""
    blocks = (guard.LOCAL_HIGHEST + 1 - 63_488) // guard.LOCAL_COUNT
    usual = 63_488 + os.geteuid() % blocks * guard.LOCAL_COUNT
    taken = socket.socket()
    taken.bind(("", usual + 7))
    with hold_in_another_process() as one:
        first = one.stdout.readline()
        taken.close()
        with hold_in_another_process() as other:
            assert first == other.stdout.readline() == f"{usual + 32} {usual + 63}\n"


def test_a_kernel_that_does_not_list_connections_has_no_local_ports(monkeypatch):
    def ask(*question):
        raise OSError

    monkeypatch.setattr(guard, "_local", [])
    monkeypatch.setattr(listeners, "ask", ask)
    assert guard.hold_local_ports() is None


def test_a_task_without_free_local_ports_has_none(monkeypatch):
    monkeypatch.setattr(guard, "_local", [])
    monkeypatch.setattr(guard, "_hold", lambda first, count: False)
    assert guard.hold_local_ports() is None
