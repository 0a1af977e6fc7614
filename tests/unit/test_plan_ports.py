"""On which ports tasks listen, at which addresses they are dialled, and who dials whom."""

from __future__ import annotations

from collections import Counter

import pytest

from tfdeploy import plan as plans
from tfdeploy.plan import LATER
from unit.made import inventory, no_plan, plan


def placed(hosts):
    """{task: (host, port)}"""
    return {str(p.task): (p.host, p.port) for p in plan(hosts).placements}


# Ports


def test_ports_are_taken_in_the_order_of_the_file():
    assert placed("[hosts.a]\nps = 1\nworkers = 1\nports = [9, 7, 8]") == {
        "ps:0": ("a", 9),
        "worker:0": ("a", 7),
    }


def test_an_evaluator_takes_no_port():
    assert placed("[hosts.a]\nworkers = 1\nevaluator = true\nports = [5, 6]") == {
        "worker:0": ("a", 5),
        "evaluator:0": ("a", None),
    }


def test_more_tasks_than_ports_are_refused():
    assert no_plan('[hosts.a]\nps = 1\nworkers = 2\nchief = true\nports = "7-8"') == (
        "hosts.a.ports: 4 tasks need a port each, found 2",
        'give it a wider range, as ports = "2222-2299"',
    )


# The port of the run itself


def test_the_chiefs_host_gives_the_run_the_port_after_its_tasks():
    assert plan("[hosts.p]\nps = 2\n[hosts.w]\nworkers = 2\nports = [9, 7, 8]").beacon_port == 8


def test_the_runs_port_is_where_its_chief_is():
    hosts = '[hosts.w]\nworkers = 1\nports = "10-19"\n[hosts.c]\nchief = true\nports = "20-29"'
    assert plan(hosts).beacon_port == 21


@pytest.mark.parametrize(
    ("lines", "tasks", "count"),
    [("ports = 5", "1 task", 1), ("ps = 1\nports = [5, 6]", "2 tasks", 2)],
)
def test_a_chiefs_host_without_a_port_for_the_run_is_refused(lines, tasks, count):
    assert no_plan(f"[hosts.a]\nworkers = 1\n{lines}") == (
        f"hosts.a.ports: {tasks} and the run itself, whose chief is here, need a port each, "
        f"found {count}",
        'give it a wider range, as ports = "2222-2299"',
    )


def test_other_hosts_need_no_port_for_the_run():
    assert placed("[hosts.w]\nworkers = 1\n[hosts.p]\nps = 1\nports = 5")["ps:0"] == ("p", 5)


def test_the_run_takes_no_port_of_another_host_at_the_same_address():
    hosts = (
        '[hosts.a]\nworkers = 1\naddress = "h"\n[hosts.b]\nps = 1\naddress = "h"\nports = 2223\n'
    )
    assert plan(hosts).beacon_port == 2224


# Ports that are found when the run starts


AUTO = '[hosts.a]\nps = 1\nworkers = 1\nports = "auto"\naddress = "10.0.0.1"\n'


def test_a_port_that_is_not_known_yet_is_told_as_auto():
    made = plan(AUTO)
    assert [p.port for p in made.placements] == [LATER, LATER]
    assert made.cluster == {"ps": ("10.0.0.1:auto",), "worker": ("10.0.0.1:auto",)}
    assert made.beacon_port == LATER


def test_ports_that_are_not_known_yet_are_never_the_same():
    assert (
        len(plan(AUTO + '[hosts.b]\nworkers = 2\nports = "auto"\naddress = "10.0.0.1"').hosts) == 2
    )


def test_auto_ports_suffice_for_any_number_of_tasks():
    assert len(placed('[hosts.a]\nworkers = 99\nports = "auto"')) == 99


# Addresses


def test_hosts_behind_one_address_need_different_ports():
    hosts = (
        '[hosts.a]\nps = 1\naddress = "10.0.0.1"\n[hosts.b]\nworkers = 1\naddress = "10.0.0.1"\n'
    )
    assert no_plan(hosts) == (
        "ps:0 on a and worker:0 on b would both listen on 10.0.0.1:2222",
        "give hosts.b its own address, or other ports",
    )
    assert plan(hosts + "ports = [2223, 2224]").cluster["worker"] == ("10.0.0.1:2223",)


def test_one_ipv6_address_in_two_spellings_is_one_address():
    first, second = '"2001:db8::1"', '"2001:DB8:0::1"'
    message, _ = no_plan(
        f"[hosts.a]\nps = 1\naddress = {first}\n[hosts.b]\nworkers = 1\naddress = {second}"
    )
    assert "ps:0 on a and worker:0 on b would both listen on" in message


def test_an_ipv6_address_is_dialled_in_brackets():
    made = plan('[hosts.a]\nworkers = 1\naddress = "2001:db8::1"')
    assert made.cluster == {"worker": ("[2001:db8::1]:2222",)}


@pytest.mark.parametrize("loopback", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_among_several_hosts_is_refused(loopback):
    assert no_plan("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1", a=loopback) == (
        f"hosts.a: its peers would dial {loopback}, "
        "which on every other machine is that machine itself",
        'say hosts.a.address = "…", as the other hosts reach it',
    )


def test_a_loopback_address_is_taken_where_it_is_said_or_alone():
    alone = inventory("[hosts.a]\nworkers = 1")
    assert plans.make(alone, {"a": "127.0.0.1"}).cluster == {"worker": ("127.0.0.1:2222",)}
    said = plan('[hosts.a]\nps = 1\naddress = "127.0.0.1"\n[hosts.b]\nworkers = 1')
    assert said.cluster["ps"] == ("127.0.0.1:2222",)


# Who dials whom


def dialled(hosts, host):
    return [str(p.task) for p in plan(hosts).dialled_from(host)]


def test_workers_dial_every_ps_of_other_hosts():
    hosts = "[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nps = 1\n[hosts.c]\nchief = true"
    assert dialled(hosts, "a") == ["ps:1"]
    assert dialled(hosts, "b") == []
    assert dialled(hosts, "c") == ["ps:0", "ps:1"]


def test_without_ps_workers_dial_each_other():
    hosts = "[hosts.a]\nworkers = 2\n[hosts.b]\nworkers = 1\n[hosts.c]\nevaluator = true"
    assert dialled(hosts, "a") == ["worker:2"]
    assert dialled(hosts, "b") == ["worker:0", "worker:1"]
    assert dialled(hosts, "c") == []


@pytest.mark.parametrize("hosts", [
    [f"[hosts.w{number}]\nworkers = 1" for number in range(50)],
    [f"[hosts.w{number}]\nps = 1\nworkers = 1" for number in range(50)],
], ids=["workers", "ps"])  # fmt: skip
def test_of_very_many_each_dials_some_and_each_is_dialled(hosts):
    made = plan("\n".join(hosts))
    found = [made.dialled_from(host) for host in made.hosts]
    assert {len({*dialled}) for dialled in found} == {plans.WITNESSES}
    times = Counter(placement.task for dialled in found for placement in dialled)
    assert len(times) == 50
    assert min(times.values()) >= plans.WITNESSES - 1


def test_without_ps_workers_dial_the_chief_too():
    assert dialled("[hosts.a]\nworkers = 1\n[hosts.b]\nchief = true", "a") == ["chief:0"]
