"""Ports, addresses, and which tasks a host tries to reach."""

from __future__ import annotations

from collections import Counter

import pytest
from support.builders import make_inventory, make_plan, plan_refusal

from tfdeploy.planning import placing
from tfdeploy.planning import plan as plans
from tfdeploy.planning.plan import PORT_PENDING


def placed(hosts):
    """Return {task: (host, port)}."""
    return {str(p.task): (p.host, p.port) for p in make_plan(hosts).placements}


# Ports


def test_ports_are_assigned_in_the_order_of_the_file():
    assert placed("[hosts.a]\nps = 1\nworkers = 1\nports = [9, 7, 8]") == {
        "ps:0": ("a", 9),
        "worker:0": ("a", 7),
    }


def test_an_evaluator_gets_no_port():
    assert placed("[hosts.a]\nworkers = 1\nevaluator = true\nports = [5, 6]") == {
        "worker:0": ("a", 5),
        "evaluator:0": ("a", None),
    }


def test_more_tasks_than_ports_are_refused():
    assert plan_refusal('[hosts.a]\nps = 1\nworkers = 2\nchief = true\nports = "7-8"') == (
        "hosts.a.ports: 4 tasks need 4 ports; found 2",
        'give it a wider range, such as ports = "2222-2299"',
    )


# The port of the heartbeat


def test_the_heartbeat_port_is_the_first_one_after_those_of_the_tasks():
    plan = make_plan("[hosts.p]\nps = 2\n[hosts.w]\nworkers = 2\nports = [9, 7, 8]")
    assert plan.heartbeat_port == 8


def test_the_heartbeat_port_is_on_the_chiefs_host():
    hosts = '[hosts.w]\nworkers = 1\nports = "10-19"\n[hosts.c]\nchief = true\nports = "20-29"'
    assert make_plan(hosts).heartbeat_port == 21


@pytest.mark.parametrize(
    ("lines", "tasks", "count"),
    [("ports = 5", "1 task", 1), ("ps = 1\nports = [5, 6]", "2 tasks", 2)],
)
def test_a_chiefs_host_without_a_port_for_the_heartbeat_is_refused(lines, tasks, count):
    assert plan_refusal(f"[hosts.a]\nworkers = 1\n{lines}") == (
        f"hosts.a.ports: {tasks} and the heartbeat of the chief's host need {count + 1} ports; "
        f"found {count}",
        'give it a wider range, such as ports = "2222-2299"',
    )


def test_other_hosts_need_no_port_for_the_heartbeat():
    assert placed("[hosts.w]\nworkers = 1\n[hosts.p]\nps = 1\nports = 5")["ps:0"] == ("p", 5)


def test_the_heartbeat_uses_no_port_of_another_host_at_the_same_address():
    hosts = (
        '[hosts.a]\nworkers = 1\naddress = "h"\n[hosts.b]\nps = 1\naddress = "h"\nports = 2223\n'
    )
    assert make_plan(hosts).heartbeat_port == 2224


# Ports that are chosen when the run starts


AUTO = '[hosts.a]\nps = 1\nworkers = 1\nports = "auto"\naddress = "10.0.0.1"\n'


def test_a_port_that_is_not_chosen_yet_is_shown_as_auto():
    plan = make_plan(AUTO)
    assert [p.port for p in plan.placements] == [PORT_PENDING, PORT_PENDING]
    assert plan.cluster == {"ps": ("10.0.0.1:auto",), "worker": ("10.0.0.1:auto",)}
    assert plan.heartbeat_port == PORT_PENDING


def test_ports_that_are_not_chosen_yet_never_collide():
    plan = make_plan(AUTO + '[hosts.b]\nworkers = 2\nports = "auto"\naddress = "10.0.0.1"')
    assert plan.hosts == ("a", "b")


def test_auto_ports_suffice_for_any_number_of_tasks():
    assert len(placed('[hosts.a]\nworkers = 99\nports = "auto"')) == 99


# Addresses


def test_two_hosts_with_one_address_need_different_ports():
    hosts = (
        '[hosts.a]\nps = 1\naddress = "10.0.0.1"\n[hosts.b]\nworkers = 1\naddress = "10.0.0.1"\n'
    )
    assert plan_refusal(hosts) == (
        "ps:0 on a and worker:0 on b would both listen on 10.0.0.1:2222",
        "give hosts.b its own address, or other ports",
    )
    assert make_plan(hosts + "ports = [2223, 2224]").cluster["worker"] == ("10.0.0.1:2223",)


def test_two_spellings_of_an_ipv6_address_are_one_address():
    first, second = '"2001:db8::1"', '"2001:DB8:0::1"'
    message, _ = plan_refusal(
        f"[hosts.a]\nps = 1\naddress = {first}\n[hosts.b]\nworkers = 1\naddress = {second}"
    )
    assert "ps:0 on a and worker:0 on b would both listen on" in message


def test_an_ipv6_address_is_in_brackets_in_the_cluster():
    plan = make_plan('[hosts.a]\nworkers = 1\naddress = "2001:db8::1"')
    assert plan.cluster == {"worker": ("[2001:db8::1]:2222",)}


@pytest.mark.parametrize("loopback", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_among_several_hosts_is_refused(loopback):
    assert plan_refusal("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1", a=loopback) == (
        f"hosts.a: its address is {loopback}, with which every other host would connect to itself",
        'set hosts.a.address = "…" to an address that the other hosts can reach',
    )


def test_a_loopback_address_is_accepted_for_a_single_host_or_if_configured():
    alone = make_inventory("[hosts.a]\nworkers = 1")
    assert placing.make_plan(alone, {"a": "127.0.0.1"}).cluster == {"worker": ("127.0.0.1:2222",)}
    configured = make_plan('[hosts.a]\nps = 1\naddress = "127.0.0.1"\n[hosts.b]\nworkers = 1')
    assert configured.cluster["ps"] == ("127.0.0.1:2222",)


# Reachability targets


def targets(hosts, host):
    return [str(p.task) for p in make_plan(hosts).reachability_targets(host)]


def test_hosts_with_workers_try_every_ps_of_other_hosts():
    hosts = "[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nps = 1\n[hosts.c]\nchief = true"
    assert targets(hosts, "a") == ["ps:1"]
    assert targets(hosts, "b") == []
    assert targets(hosts, "c") == ["ps:0", "ps:1"]


def test_without_ps_hosts_with_workers_try_each_other():
    hosts = "[hosts.a]\nworkers = 2\n[hosts.b]\nworkers = 1\n[hosts.c]\nevaluator = true"
    assert targets(hosts, "a") == ["worker:2"]
    assert targets(hosts, "b") == ["worker:0", "worker:1"]
    assert targets(hosts, "c") == []


@pytest.mark.parametrize("hosts", [
    [f"[hosts.w{number}]\nworkers = 1" for number in range(50)],
    [f"[hosts.w{number}]\nps = 1\nworkers = 1" for number in range(50)],
], ids=["workers", "ps"])  # fmt: skip
def test_with_many_hosts_each_tries_some_and_each_is_tried(hosts):
    plan = make_plan("\n".join(hosts))
    targets_of_hosts = [plan.reachability_targets(host) for host in plan.hosts]
    assert {len({*targets}) for targets in targets_of_hosts} == {plans.MAX_TARGETS}
    tries = Counter(target.task for targets in targets_of_hosts for target in targets)
    assert len(tries) == 50
    assert min(tries.values()) >= plans.MAX_TARGETS - 1


def test_without_ps_workers_try_the_chief_too():
    assert targets("[hosts.a]\nworkers = 1\n[hosts.b]\nchief = true", "a") == ["chief:0"]
