"""Two hosts measure the link between them; nobody else may."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading

import pytest
from support.delaying_proxy import DelayingProxy, RoundTrips
from support.ports import ADDRESS, free_port, free_ports

from tfdeploy.agent.machine import leases
from tfdeploy.agent.machine.sockets import DeadlineSocket
from tfdeploy.agent.preflight import links
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.supervision.heartbeat import signing

MAX_BYTES = 1 << 30
SECRET = "s" * 32
CLOSED = r"closed the connection|reset"


@pytest.fixture
def listening(monkeypatch):
    """A host that listens for the client "a"; its port."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        stream = links.listen_for_links([free_port()], {"a": SECRET})
        yield next(stream).port
        stream.close()


@pytest.fixture
def proxy(listening):
    between = DelayingProxy(listening, RoundTrips(), bytes_s=1e6)
    yield between
    between.close()


def measure(port, secret=SECRET, client="a", seconds=0.5):
    return links.measure_link(ADDRESS, port, client, secret, seconds, MAX_BYTES)


def test_a_slow_link_is_measured_in_both_directions(proxy):
    found = measure(proxy.port)
    assert 0 < found.sent < 1.5e6
    assert 0 < found.received < 1.5e6
    assert (found.own.name, found.peer.name) == ("", "")


def test_a_distant_host_has_a_long_round_trip(proxy):
    proxy.round_trip_s, proxy.bytes_s = 0.05, 0.0
    assert measure(proxy.port).round_trip_s >= 0.05


def test_a_fast_link_is_faster_than_a_slow_one(listening):
    found = measure(listening)
    assert min(found.sent, found.received) > 2e6
    assert found.round_trip_s > 0


def test_no_more_than_the_limit_is_sent(listening):
    without_limit_s = 1e6
    assert links.measure_link(ADDRESS, listening, "a", SECRET, without_limit_s, 1 << 20).sent > 0


@pytest.mark.parametrize(("secret", "client"), [("x", "a"), (SECRET, "b"), ("", "")])
def test_a_client_without_the_secret_gets_no_answer(listening, secret, client):
    with pytest.raises(Refusal, match=CLOSED):
        measure(listening, secret, client)
    assert measure(listening).sent > 0  # the client itself can still connect


def test_a_secret_is_valid_once(listening):
    measure(listening)
    with pytest.raises(Refusal, match=CLOSED):
        measure(listening)


def test_a_host_that_is_no_peer_is_refused():
    with socket.create_server((ADDRESS, 0)) as stranger:

        def answer():
            connection, _ = stranger.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b'{"sender": "a", "nonce": "", "body": "{}", "mac": ""}\n')

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(Refusal, match="does not know the secret"):
            measure(stranger.getsockname()[1])


def test_a_peer_that_sends_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(links, "MAX_BYTES", 1 << 20)
    here, peer = socket.socketpair()

    def send():
        with contextlib.suppress(OSError):
            while True:
                peer.sendall(links.MORE * links.BLOCK)

    with here, peer:
        sending = threading.Thread(target=send)
        sending.start()
        with pytest.raises(signing.Untrusted, match="more than was asked for"):
            links._receive(DeadlineSocket(here, 10.0))
        here.close()
        sending.join()


def test_a_dead_link_is_reported_with_the_reason():
    with pytest.raises(Refusal, match="Connection refused"):
        measure(free_port())


def test_a_port_that_a_task_has_is_replaced_by_another_one():
    taken, free = free_ports(2)
    with socket.create_server((ADDRESS, taken)):
        server = links._serve([taken, free], lambda connection: None)
        server.close()
    assert server.address[1] == free


def test_live_tasks_are_those_that_hold_a_lease(monkeypatch):
    monkeypatch.setattr(leases, "process_age_s", lambda pid: 60.0)  # the same in both descriptions
    held = leases.acquire([f"port/{free_port()}"])
    own = [each for each in leases.holders() if each.pid == os.getpid()]
    assert [each.description for each in own] == [
        each for each in links.live_tasks().holders if re.match(rf"pid {os.getpid()}\b", each)
    ]
    assert own
    leases.release(held)
    assert os.getpid() not in [each.pid for each in leases.holders()]
