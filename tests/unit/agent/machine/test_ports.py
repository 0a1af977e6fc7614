"""Free ports of this machine, and the refusal of a port that is taken."""

from __future__ import annotations

import socket

import pytest
from support.ports import free_port, free_ports
from support.refusals import port_refusal

from tfdeploy.agent.machine import leases, ports
from tfdeploy.agent.refusal import Refusal


def test_an_unused_port_is_free():
    port = free_port()
    assert ports.is_free(port)
    ports.require_free(port, "worker:0")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.2", "::", "::1"])
def test_a_listener_on_any_address_blocks_the_port(address):
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


def test_checking_a_port_does_not_take_it():
    port = free_port()
    assert ports.is_free(port)
    with socket.create_server(("", port)):
        pass


def test_a_port_without_listener_is_not_attributed_to_another_user():
    with socket.socket() as bound:
        bound.bind(("", 0))
        message, _ = port_refusal(bound.getsockname()[1])
    assert "another user" not in message
    assert message.endswith("a connection or a process that does not listen on it")


# Choosing ports


@pytest.fixture
def four_candidates():
    """Four free ports, the only candidates."""
    return sorted(free_ports(4))


def test_chosen_ports_are_free_and_distinct():
    candidates = free_ports(40)
    chosen = ports.choose(20, candidates)
    assert len(set(chosen)) == 20
    assert set(chosen) <= set(candidates)
    assert all(ports.is_free(port) for port in chosen)


def test_ports_with_a_listener_or_a_lease_are_not_chosen(four_candidates):
    held = leases.acquire([f"port/{four_candidates[2]}"])
    with socket.create_server(("", four_candidates[1])):
        for _ in range(5):
            assert set(ports.choose(2, four_candidates)) == {four_candidates[0], four_candidates[3]}
    leases.release(held)
    assert set(ports.choose(4, four_candidates)) == set(four_candidates)


def test_the_search_starts_at_a_random_port(four_candidates):
    assert len({ports.choose(1, four_candidates)[0] for _ in range(60)}) > 1


def test_more_ports_than_are_free_are_refused(four_candidates):
    with socket.create_server(("", four_candidates[0])), pytest.raises(Refusal) as refused:
        ports.choose(4, four_candidates)
    assert refused.value.message == (
        f"fewer than 4 ports from {four_candidates[0]} to {four_candidates[3]} are free"
    )


def test_candidates_are_not_used_for_outgoing_connections():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    assert set(ports.CANDIDATES).isdisjoint(range(first, last + 1))
