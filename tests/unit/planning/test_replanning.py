"""A lost host: which hosts take its tasks, and on which ports they run."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.errors import PlanError
from tfdeploy.planning import placing, replanning

THREE = "[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nworkers = 2\n[hosts.c]\nworkers = 1\n"
SPARE = '[hosts.s]\nspare = true\ngpus = 2\nports = "7000-7009"\naddress = "10.0.0.9"\n'


def placed(inventory):
    """Return {task: host} of an inventory's plan."""
    addresses = {host.name: host.address or host.name for host in inventory.hosts}
    return {str(p.task): p.host for p in placing.make_plan(inventory, addresses).placements}


def without(hosts, *lost):
    """Return the inventory after the loss of these hosts."""
    inventory = make_inventory(hosts)
    for host in lost:
        inventory = replanning.remove_host(inventory, host)
    return inventory


# With a spare


def test_a_spare_takes_the_place_of_the_lost_host():
    assert placed(without(THREE + SPARE, "b")) == {
        "ps:0": "a", "worker:0": "a", "worker:1": "s", "worker:2": "s", "worker:3": "c",
    }  # fmt: skip


def test_a_spare_keeps_its_own_gpus_ports_and_address():
    spare = without(THREE + SPARE, "b").host("s")
    assert (spare.gpus, spare.ports[0], spare.address) == (range(2), 7000, "10.0.0.9")
    assert not spare.spare


def test_the_first_spare_is_used_first():
    second = SPARE.replace("hosts.s", "hosts.t").replace("0.9", "0.10")
    inventory = without(THREE + SPARE + second, "b")
    assert [(host.name, host.spare) for host in inventory.hosts] == [
        ("a", False), ("s", False), ("c", False), ("t", True),
    ]  # fmt: skip
    assert placed(without(THREE + SPARE + second, "b", "a"))["ps:0"] == "t"


def test_a_lost_spare_is_removed():
    assert without(THREE + SPARE, "s").hosts == make_inventory(THREE).hosts


def test_a_spare_takes_over_the_chief():
    hosts = "[hosts.a]\nworkers = 1\n[hosts.b]\nchief = true\nevaluator = true\n" + SPARE
    assert placed(without(hosts, "b")) == {"worker:0": "a", "chief:0": "s", "evaluator:0": "s"}


# Without a spare


def test_without_a_spare_the_lost_workers_are_dropped():
    assert placed(without(THREE, "b")) == {"ps:0": "a", "worker:0": "a", "worker:1": "c"}


def test_without_a_spare_a_ps_moves_to_the_first_other_host():
    assert placed(without(THREE, "a")) == {
        "ps:0": "b", "worker:0": "b", "worker:1": "b", "worker:2": "c",
    }  # fmt: skip


def test_the_order_of_the_other_hosts_stays():
    assert [host.name for host in without(THREE, "a").hosts] == ["b", "c"]


def test_without_a_spare_chief_and_evaluator_move_too():
    hosts = "[hosts.a]\nworkers = 1\n[hosts.b]\nchief = true\nevaluator = true"
    assert placed(without(hosts, "b")) == {"worker:0": "a", "chief:0": "a", "evaluator:0": "a"}


@pytest.mark.parametrize(
    ("gpus", "workers"),
    [
        ("gpus = 2\nworkers = 2", ["worker:0"]),
        ('gpus = 2\nworkers = "per-gpu"', ["worker:0"]),
        ("gpus = 4\nworkers = 2\ngpus_per_worker = 2", ["worker:0"]),
        ("gpus = 3\nworkers = 2", ["worker:0", "worker:1"]),
        ("gpus = 2\nworkers = 2\ngpus_per_chief = 0", ["worker:0", "worker:1"]),
        ("workers = 2", ["worker:0", "worker:1"]),
    ],
)
def test_a_chief_takes_the_gpu_of_a_worker_if_all_are_in_use(gpus, workers):
    inventory = without(f"[hosts.a]\n{gpus}\n[hosts.b]\nchief = true\ngpus = 1", "b")
    assert list(placed(inventory)) == [*workers, "chief:0"]


def test_the_host_that_takes_the_tasks_does_not_change_otherwise():
    before, after = make_inventory(THREE).host("b"), without(THREE, "a").host("b")
    assert after == before.copy_with({"ps": 1})


def test_several_hosts_can_be_removed():
    assert placed(without(THREE, "a", "b")) == {"ps:0": "c", "worker:0": "c"}


# Refused


def test_the_hint_for_an_unknown_host_lists_the_hosts():
    with pytest.raises(PlanError) as refused:
        without(THREE, "x")
    assert str(refused.value) == 'there is no host "x" in this run\n  its hosts are a, b, c'


def test_the_last_host_can_not_be_removed():
    with pytest.raises(PlanError) as refused:
        without("[hosts.a]\nworkers = 1", "a")
    assert str(refused.value) == (
        "no host is left without a\n  add a host to hosts.toml and start a new run"
    )


def test_a_remainder_without_workers_makes_no_plan():
    with pytest.raises(PlanError, match="nothing would train"):
        placed(without("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1", "b"))


# Ports


def rotated(hosts):
    """Return the plan, the inventory with rotated ports, and the addresses."""
    inventory = make_inventory(hosts)
    addresses = {host.name: host.name for host in inventory.hosts}
    plan = placing.make_plan(inventory, addresses)
    return plan, replanning.rotate_ports(inventory, plan), addresses


def test_no_task_listens_on_a_port_that_was_used_before():
    before, inventory, addresses = rotated(THREE)
    after = placing.make_plan(inventory, addresses)
    old = {(p.host, p.port) for p in before.placements} | {("a", before.heartbeat_port)}
    new = {(p.host, p.port) for p in after.placements} | {("a", after.heartbeat_port)}
    assert old & new == set()


def test_rotation_keeps_every_port():
    inventory = rotated(THREE)[1]
    for host in inventory.hosts:
        assert sorted(host.ports) == sorted(make_inventory(THREE).host(host.name).ports)


def test_ports_are_reused_if_there_are_no_others():
    before, inventory, addresses = rotated("[hosts.a]\nworkers = 2\nports = [5, 7, 9]")
    assert inventory.host("a").ports == (5, 7, 9)
    assert placing.make_plan(inventory, addresses) == before


def test_unused_ports_come_first():
    assert rotated("[hosts.a]\nworkers = 1\nports = [5, 7, 9]")[1].host("a").ports == (9, 5, 7)


def test_auto_ports_stay_auto():
    assert rotated('[hosts.a]\nworkers = 1\nports = "auto"')[1].host("a").ports == ()


def test_replicas_are_lowered_to_the_number_of_other_hosts():
    inventory = make_inventory(THREE, training="replicas = 2")
    assert replanning.remove_host(inventory, "a").training.replicas == 1
    assert (
        replanning.remove_host(replanning.remove_host(inventory, "a"), "b").training.replicas == 0
    )
    with_spare = replanning.remove_host(make_inventory(THREE + SPARE, training="replicas = 2"), "a")
    assert with_spare.training.replicas == 2
