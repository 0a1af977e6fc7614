"""Which address of a host is used, from what the others reached."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.init.network import (
    Addresses,
    HostNetwork,
    choose_address,
    find_network,
    targets_of,
    usable_addresses,
)
from tfdeploy.shared.protocol.preflight import OpenPorts

BRIDGE = "172.17.0.1"
HOSTS = {"a": Addresses("a", ["10.0.0.1", BRIDGE]), "b": Addresses("b", ["10.0.0.2", BRIDGE])}
PORTS = {"a": [2222], "b": [2222]}


def test_an_address_that_every_host_has_is_not_tried():
    assert usable_addresses(HOSTS, PORTS) == {"a": ["a", "10.0.0.1"], "b": ["b", "10.0.0.2"]}


def test_an_address_with_other_ports_means_one_host():
    usable = usable_addresses(HOSTS, {"a": [2222], "b": [2322]})
    assert usable["a"] == ["a", "10.0.0.1", BRIDGE]


def test_loopback_is_only_tried_for_a_host_that_is_alone():
    loopback = Addresses("127.0.0.1", ["10.0.0.1"])
    assert usable_addresses({"a": loopback}, PORTS)["a"] == ["127.0.0.1", "10.0.0.1"]
    both = {"a": loopback, "b": Addresses("localhost", ["10.0.0.2"])}
    assert usable_addresses(both, PORTS) == {"a": ["10.0.0.1"], "b": ["10.0.0.2"]}


@pytest.mark.parametrize(
    ("failures", "chosen", "problem"),
    [
        ({"a": {}}, None, ""),
        ({"a": {"b": "refused"}, "10.0.0.1": {}}, "10.0.0.1", ""),
        (
            {"a": {"b": "refused", "c": "refused"}, "10.0.0.1": {"c": "no answer"}},
            "10.0.0.1",
            "c can't reach it at a, 10.0.0.1: no answer",
        ),
        (
            {"a": {"b": "refused"}, "10.0.0.1": {"b": "no answer"}},
            None,
            "b can't reach it at a, 10.0.0.1: refused",
        ),
        ({}, None, f"no address is known to lead to it alone: a, 10.0.0.1, {BRIDGE}"),
    ],
)
def test_the_first_address_that_all_reach_is_chosen(failures, chosen, problem):
    tried = {("a", address): by for address, by in failures.items()}
    usable = ["a", "10.0.0.1"]
    assert choose_address("a", HOSTS["a"], usable, tried) == (chosen, problem)


def test_a_host_is_tried_by_a_bounded_number_of_others():
    hosts = [f"h{n}" for n in range(100)]
    wanted = {"h3": ["x", "y"]}
    tried_by = [host for host in hosts if [*targets_of(host, hosts, wanted)]]
    assert len(tried_by) == 17
    assert [*targets_of("h3", hosts, wanted)] == [("h3", "x"), ("h3", "y")]


class Fleet:
    """Hosts behind a firewall that admits connections to the ports `admitted` alone."""

    def __init__(self, admitted):
        self.admitted = admitted

    def outcomes(self, hosts, act):
        agents = [SimpleNamespace(host=host, stream=self.stream, ask=self.ask) for host in hosts]
        return {agent.host: act(agent) for agent in agents}

    def stream(self, request, silence_s):
        free = enumerate(request.wanted.items(), 30_000)
        yield OpenPorts({name: port or number for number, (name, port) in free}, [])

    def ask(self, request):
        return SimpleNamespace(
            answers=["" if at.port in self.admitted else "no answer" for at in request.at]
        )


@pytest.mark.parametrize(
    ("admitted", "ports", "is_reached"),
    [
        (range(65536), "auto", True),
        (range(2222, 2300), "2222-2299", True),
        ([], "2222-2299", False),
    ],
)
def test_only_hosts_behind_a_firewall_get_fixed_ports(admitted, ports, is_reached):
    found = find_network(Fleet(admitted), HOSTS, {"a": 1, "b": 2})
    assert {found["a"].ports, found["b"].ports} == {ports}
    if is_reached:
        assert found["b"] == HostNetwork(ports)
    else:
        assert "can't reach it at b, 10.0.0.2" in found["b"].problem
