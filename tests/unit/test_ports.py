"""Which ports of this machine are free, and what is said of one that isn't."""

from __future__ import annotations

import os
import random
import socket

import pytest

from tfdeploy.agent import leases, ports, process
from tfdeploy.agent.refusal import Refusal
from unit.kept import free_port
from unit.made import as_nobody, python

LISTEN = (
    "import socket, sys, time; listener = socket.create_server(('', 0));"
    " print(listener.getsockname()[1], flush=True); time.sleep(60)"
)


def test_a_port_that_nobody_has_is_free():
    port = free_port()
    assert ports.is_free(port)
    ports.check(port, "worker:0")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.2", "::", "::1"])
def test_a_listener_at_any_address_is_in_the_way(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_port_is_free_again_once_its_connections_have_ended():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
    assert ports.is_free(port)


def test_looking_takes_nothing():
    port = free_port()
    assert ports.is_free(port)
    with socket.create_server(("", port)):
        pass


def refused(port, task="worker:1"):
    with pytest.raises(Refusal) as no:
        ports.check(port, task)
    return no.value.message, no.value.hint


def test_a_stranger_on_a_port_is_named():
    with python(LISTEN) as stranger:
        message, hint = refused(int(stranger.said))
        stranger.kill()
    said = f"port {stranger.said} for worker:1 is taken by pid {stranger.pid} ("
    assert (message.startswith(said), hint) == (
        True,
        "stop that one, or give the host other ports",
    )


def test_a_task_that_an_earlier_run_left_is_named_with_how_to_end_it():
    env = {**os.environ, process.MARK: "digits/r-7/ps:1"}
    with python(LISTEN, env=env) as stale:
        message, hint = refused(int(stale.said))
        stale.kill()
    assert message.endswith("ps:1 of run r-7 of digits")
    assert hint == "end what is left of it with tfdeploy stop --run r-7"


def test_a_process_that_may_not_be_seen_is_told_as_such(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root has processes that it can hide from itself as another user")
    with python(LISTEN) as hidden:
        with as_nobody(tmp_path):
            message, _ = refused(int(hidden.said))
        hidden.kill()
    assert message.endswith("is taken by a process of another user")


def test_a_port_of_roots_is_refused_before_anything_tries_it(tmp_path):
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as start:
        first = int(start.read())
    if first < 2:
        pytest.skip("here every user may open every port")
    with as_nobody(tmp_path):
        assert refused(first - 1) == (
            f"port {first - 1} may not be opened by this user",
            "ports below 1024 are root's: give the host others",
        )


# Chosen


@pytest.fixture
def few(monkeypatch):
    """Four neighbouring ports that are free, the only ones to choose from."""
    for _ in range(100):
        first = random.randrange(40000, 60000)
        if all(ports.is_free(port) for port in range(first, first + 4)):
            monkeypatch.setattr(ports, "CHOICE", range(first, first + 4))
            return ports.CHOICE
    raise AssertionError("no four neighbouring ports are free")


def test_ports_are_chosen_that_are_free_and_each_once():
    chosen = ports.choose(20)
    assert len(set(chosen)) == 20
    assert set(chosen) <= set(ports.CHOICE)
    assert all(ports.is_free(port) for port in chosen)


def test_what_is_listened_on_or_on_lease_is_not_chosen(few):
    held = leases.hold([f"port/{few[2]}"])
    with socket.create_server(("", few[1])):
        for _ in range(5):
            assert set(ports.choose(2)) == {few[0], few[3]}
    leases.release(held)
    assert set(ports.choose(4)) == set(few)


def test_two_who_choose_at_once_begin_at_different_places(few):
    assert len({ports.choose(1)[0] for _ in range(60)}) > 1


def test_more_ports_than_are_free_are_refused(few):
    with socket.create_server(("", few[0])), pytest.raises(Refusal) as no:
        ports.choose(4)
    assert no.value.message == f"no 4 ports are free from {few[0]} on"


def test_what_is_chosen_is_not_given_to_outgoing_connections():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as told:
        first, last = map(int, told.read().split())
    assert set(ports.CHOICE).isdisjoint(range(first, last + 1))
