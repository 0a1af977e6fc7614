"""Which ports of a task are exposed, by what the kernel and /proc say."""

from __future__ import annotations

import pytest

from tfdeploy.agent.machine import guard, listeners, process
from tfdeploy.agent.machine.guard import MAX_NAMED, ExposedPorts
from tfdeploy.agent.machine.listeners import ListeningSocket


@pytest.fixture
def host(monkeypatch):
    """A host whose task is process 1 (guarded), 2 (without the library) and 3 (hidden)."""
    opened = {1: {"11"}, 2: {"12"}, 3: set(), 4: {"14"}}
    sockets, looks = [], []

    def task_processes(*arguments):
        looks.append(arguments)
        return [1, 2, 3]

    def holder(inodes):
        return next((pid for pid, found in opened.items() if found & inodes), None)

    monkeypatch.setattr(listeners, "of_user", lambda user: sockets)
    monkeypatch.setattr(process, "task_processes", task_processes)
    monkeypatch.setattr(process, "socket_inodes", opened.get)
    monkeypatch.setattr(process, "holder", holder)
    monkeypatch.setattr(process, "name", "pid {}".format)
    monkeypatch.setattr(process, "read", lambda pid, name: b"cmd")
    monkeypatch.setattr(process, "is_readable", lambda pid: pid != 3)
    monkeypatch.setattr(guard, "is_loaded", lambda pid: pid == 1)
    return sockets, looks


@pytest.mark.parametrize(
    ("listener", "exposed"),
    [
        (ListeningSocket("11", 80, "tcp"), ""),
        (ListeningSocket("11", 80, "udp"), "udp port 80 of pid 1"),
        (ListeningSocket("12", 80, "tcp"), "tcp port 80 of pid 2"),
        (ListeningSocket("13", 80, "tcp"), "tcp port 80, perhaps of pid 3"),
        (ListeningSocket("14", 80, "tcp"), ""),  # of a process that is none of the task's
    ],
)
def test_a_port_is_exposed_if_its_process_has_no_guard(host, listener, exposed):
    host[0].append(listener)
    assert ExposedPorts("p/r/worker:0", 1).find() == exposed


def test_processes_are_looked_at_only_for_a_new_socket(host):
    sockets, looks = host
    ports = ExposedPorts("p/r/worker:0", 1)
    sockets += [ListeningSocket("12", 80, "tcp"), ListeningSocket("14", 81, "tcp")]
    assert [ports.find() for _ in range(3)] == ["tcp port 80 of pid 2"] * 3
    assert len(looks) == 1
    del sockets[0]
    assert ports.find() == ""
    assert len(looks) == 1


def test_many_ports_are_not_all_named(host):
    host[0].extend(
        ListeningSocket(str(n), 80 + n, "tcp") for n in range(20, 30)
    )  # of a hidden process
    text = ExposedPorts("p/r/worker:0", 1).find()
    assert text.count(" perhaps of pid 3") == MAX_NAMED
    assert text.endswith(", 5 more")
