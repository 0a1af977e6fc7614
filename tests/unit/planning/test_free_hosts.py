"""`workers` in [training]: which hosts get the workers, by their free GPUs."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.config import toml_text
from tfdeploy.config.inventory import parse
from tfdeploy.errors import PlanError
from tfdeploy.planning.free_hosts import choose

HOSTS = '[hosts."g[0-4]"]\ngpus = 4\n'
FREE = {"g0": [], "g1": [0, 1], "g2": [0, 1, 2, 3], "g3": [1, 2, 3], "g4": [2]}
TRAINING = "workers = 6"


def chosen(workers, hosts=HOSTS, free=FREE):
    inventory, _ = choose(make_inventory(hosts, training=TRAINING), free, workers)
    return {host.name: host.workers for host in inventory.hosts}


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, {"g4": 1}),  # larger hosts stay whole
        (3, {"g3": 3}),
        (4, {"g2": 4}),
        (6, {"g1": 2, "g2": 4}),
        (10, {"g1": 2, "g2": 4, "g3": 3, "g4": 1}),
    ],
)
def test_the_fewest_hosts_are_taken_and_of_these_the_smallest(workers, expected):
    assert chosen(workers) == expected


def test_a_worker_with_two_gpus_needs_both_on_one_host():
    hosts = HOSTS + "gpus_per_worker = 2\n"
    assert chosen(3, hosts) == {"g1": 1, "g2": 2}
    with pytest.raises(PlanError, match=r"expected room for 5 workers; found room for 4, with"):
        chosen(5, hosts)


def test_hosts_with_other_tasks_stay_and_spare_hosts_get_no_worker():
    hosts = HOSTS + "[hosts.cpu]\nps = 1\n[hosts.extra]\ngpus = 4\nspare = true\n"
    assert chosen(1, hosts) == {"g4": 1, "cpu": 0, "extra": 0}


def test_of_a_list_of_gpus_those_that_are_free_are_used():
    hosts = "[hosts.g1]\ngpus = [0, 1, 2]\n"
    inventory, _ = choose(make_inventory(hosts, training=TRAINING), {"g1": [1, 2, 3]}, 2)
    assert inventory.host("g1").gpus == (1, 2)


def test_a_host_with_workers_of_its_own_is_refused():
    with pytest.raises(PlanError, match=r"hosts.g1.workers: found 2; with workers in"):
        chosen(1, "[hosts.g1]\ngpus = 4\nworkers = 2\n")


def test_what_was_chosen_can_be_started_again_from_the_record(tmp_path):
    inventory, _ = choose(make_inventory(HOSTS, training=TRAINING), FREE, 3)
    again = parse(toml_text.write(inventory.to_toml()), tmp_path / "hosts.toml")
    assert again.training.workers is None
    assert [(host.name, host.workers) for host in again.hosts] == [("g3", 3)]
