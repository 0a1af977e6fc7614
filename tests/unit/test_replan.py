"""A host is gone: who carries what it carried, and on which ports."""

from __future__ import annotations

import pytest

from tfdeploy import plan as plans
from tfdeploy import replan
from tfdeploy.errors import PlanError
from unit.made import inventory

THREE = "[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nworkers = 2\n[hosts.c]\nworkers = 1\n"
SPARE = '[hosts.s]\nspare = true\ngpus = 2\nports = "7000-7009"\naddress = "10.0.0.9"\n'


def placed(made):
    """{task: host} of an inventory's plan."""
    addresses = {host.name: host.address or host.name for host in made.hosts}
    return {str(p.task): p.host for p in plans.make(made, addresses).placements}


def without(hosts, *lost):
    made = inventory(hosts)
    for host in lost:
        made = replan.without(made, host)
    return made


# With a spare


def test_a_spare_takes_the_place_of_the_lost_host():
    assert placed(without(THREE + SPARE, "b")) == {
        "ps:0": "a", "worker:0": "a", "worker:1": "s", "worker:2": "s", "worker:3": "c",
    }  # fmt: skip


def test_a_spare_stays_itself_otherwise():
    taken = without(THREE + SPARE, "b").host("s")
    assert (taken.gpus, taken.ports[0], taken.address) == ((0, 1), 7000, "10.0.0.9")
    assert not taken.spare


def test_the_first_spare_is_taken_and_the_next_one_stays_spare():
    second = SPARE.replace("hosts.s", "hosts.t").replace("0.9", "0.10")
    made = without(THREE + SPARE + second, "b")
    assert [(host.name, host.spare) for host in made.hosts] == [
        ("a", False), ("s", False), ("c", False), ("t", True),
    ]  # fmt: skip
    assert placed(without(THREE + SPARE + second, "b", "a"))["ps:0"] == "t"


def test_a_lost_spare_is_no_more():
    assert without(THREE + SPARE, "s").hosts == inventory(THREE).hosts


def test_a_spare_becomes_the_chief():
    hosts = "[hosts.a]\nworkers = 1\n[hosts.b]\nchief = true\nevaluator = true\n" + SPARE
    assert placed(without(hosts, "b")) == {"worker:0": "a", "chief:0": "s", "evaluator:0": "s"}


# Without one


def test_workers_that_nobody_can_take_over_are_no_more():
    assert placed(without(THREE, "b")) == {"ps:0": "a", "worker:0": "a", "worker:1": "c"}


def test_a_ps_moves_to_the_first_host_that_is_left():
    assert placed(without(THREE, "a")) == {
        "ps:0": "b", "worker:0": "b", "worker:1": "b", "worker:2": "c",
    }  # fmt: skip


def test_the_order_of_the_hosts_stays():
    assert [host.name for host in without(THREE, "a").hosts] == ["b", "c"]


def test_a_chief_and_an_evaluator_move_too():
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
def test_a_chief_takes_the_gpu_of_a_worker_where_all_are_in_use(gpus, workers):
    made = without(f"[hosts.a]\n{gpus}\n[hosts.b]\nchief = true\ngpus = 1", "b")
    assert list(placed(made)) == [*workers, "chief:0"]


def test_nothing_else_of_the_heir_changes():
    before, after = inventory(THREE).host("b"), without(THREE, "a").host("b")
    assert after == before.model_copy(update={"ps": 1})


def test_hosts_may_be_lost_one_after_the_other():
    assert placed(without(THREE, "a", "b")) == {"ps:0": "c", "worker:0": "c"}


# Refused


def test_a_host_that_was_never_there_is_met_with_those_that_are():
    with pytest.raises(PlanError) as refused:
        without(THREE, "x")
    assert str(refused.value) == 'there is no host "x" in this run\n  its hosts are a, b, c'


def test_the_last_host_can_not_be_done_without():
    with pytest.raises(PlanError) as refused:
        without("[hosts.a]\nworkers = 1", "a")
    assert str(refused.value) == "no host is left without a\n  add one to hosts.toml, run anew"


def test_what_is_left_may_train_nothing():
    with pytest.raises(PlanError, match="nothing would train"):
        placed(without("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1", "b"))


# Ports


def rotated(hosts):
    made = inventory(hosts)
    addresses = {host.name: host.name for host in made.hosts}
    plan = plans.make(made, addresses)
    return plan, replan.on_other_ports(made, plan), addresses


def test_nobody_listens_where_somebody_did_before():
    before, made, addresses = rotated(THREE)
    after = plans.make(made, addresses)
    old = {(p.host, p.port) for p in before.placements} | {("a", before.beacon_port)}
    new = {(p.host, p.port) for p in after.placements} | {("a", after.beacon_port)}
    assert old & new == set()


def test_no_port_is_lost_or_won():
    made = rotated(THREE)[1]
    for host in made.hosts:
        assert sorted(host.ports) == sorted(inventory(THREE).host(host.name).ports)


def test_where_there_are_no_others_the_same_ports_serve_again():
    before, made, addresses = rotated("[hosts.a]\nworkers = 2\nports = [5, 7, 9]")
    assert made.host("a").ports == (5, 7, 9)
    assert plans.make(made, addresses) == before


def test_of_few_ports_the_unused_ones_come_first():
    assert rotated("[hosts.a]\nworkers = 1\nports = [5, 7, 9]")[1].host("a").ports == (9, 5, 7)


def test_ports_that_are_found_at_the_start_stay_so():
    assert rotated('[hosts.a]\nworkers = 1\nports = "auto"')[1].host("a").ports == ()


def test_no_more_copies_are_asked_for_than_hosts_are_left_besides_the_chiefs():
    made = inventory(THREE, training="replicas = 2")
    assert replan.without(made, "a").training.replicas == 1
    assert replan.without(replan.without(made, "a"), "b").training.replicas == 0
    spared = replan.without(inventory(THREE + SPARE, training="replicas = 2"), "a")
    assert spared.training.replicas == 2
