"""Other numbers of ps and workers on the same hosts: which host runs which task."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.errors import PlanError
from tfdeploy.planning import placing, replanning
from tfdeploy.planning.replanning import describe_counts, with_counts

THREE = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 2\n[hosts.c]\nworkers = 1\n"
IDLE = "[hosts.i]\n"
SPARE = "[hosts.s]\nspare = true\nworkers = 5\n"


def tasks(hosts, counts, on=()):
    """Return {host: (ps, workers)} of the hosts that run some, in their order."""
    changed = with_counts(make_inventory(hosts), counts, on)
    return {h.name: (h.ps, h.workers) for h in changed.hosts if not h.spare and (h.ps or h.workers)}


def refusal(hosts, counts, on=()):
    with pytest.raises(PlanError) as error:
        with_counts(make_inventory(hosts), counts, on)
    return error.value.message


def test_nothing_to_count_changes_nothing():
    assert with_counts(make_inventory(THREE + IDLE + SPARE), {}) == make_inventory(
        THREE + IDLE + SPARE
    )


def test_a_job_that_is_not_named_keeps_its_tasks():
    assert tasks(THREE, {"ps": 2}) == {"a": (2, 0), "b": (0, 2), "c": (0, 1)}
    assert tasks(THREE, {"workers": 1}) == {"a": (1, 0), "b": (0, 1)}


def test_an_idle_host_gets_tasks_first_and_its_tasks_come_last():
    assert tasks(IDLE + THREE, {"workers": 4}) == {
        "a": (1, 0), "b": (0, 2), "c": (0, 1), "i": (0, 1)
    }  # fmt: skip
    assert list(tasks(IDLE + THREE, {"workers": 4})) == ["a", "b", "c", "i"]


def test_an_idle_host_may_run_the_first_ps():
    assert tasks("[hosts.w]\nworkers = 1\n" + IDLE, {"ps": 1}) == {"w": (0, 1), "i": (1, 0)}


def test_a_spare_host_is_used_only_if_it_is_named():
    assert tasks(THREE + SPARE, {"workers": 4}) == {"a": (1, 0), "b": (0, 2), "c": (0, 2)}
    found = tasks(THREE + SPARE, {"workers": 4}, on=["s"])
    assert found == {"a": (1, 0), "b": (0, 2), "c": (0, 1), "s": (0, 1)}


def test_a_host_with_other_tasks_is_used_only_if_it_is_named():
    assert tasks(THREE, {"ps": 2}, on=["c"]) == {"a": (1, 0), "b": (0, 2), "c": (1, 1)}


def test_workers_with_gpus_do_not_go_to_a_host_without():
    gpus = "[hosts.g]\ngpus = 4\nworkers = 2\n" + IDLE
    assert tasks(gpus, {"workers": 4}) == {"g": (0, 4)}
    assert refusal(gpus, {"workers": 5}) == "the ports and GPUs of g suffice for only 4 workers"
    assert tasks(gpus, {"workers": 5}, on=["i"]) == {"g": (0, 2), "i": (0, 3)}
    assert tasks(gpus, {"workers": 1}, on=["i"]) == {"g": (0, 1)}


def test_fewer_workers_make_room_for_more_ps():
    one = '[hosts.a]\nps = 1\nworkers = 3\nports = "2222-2226"\n'
    assert tasks(one, {"ps": 3, "workers": 1}) == {"a": (3, 1)}
    assert refusal(one, {"ps": 3}) == "the ports and GPUs of a suffice for only 1 ps"


def test_an_unknown_host_is_refused_with_the_known_ones():
    assert refusal(THREE, {"workers": 4}, on=["d"]) == 'there is no host "d"'


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (THREE + SPARE, "1 ps and 3 workers"),
        ("[hosts.a]\nps = 2\nchief = true\nworkers = 1\n", "2 ps, 1 chief and 1 worker"),
        ("[hosts.a]\ngpus = 2\nworkers = 'per-gpu'\nevaluator = true\n", "2 workers"),
    ],
)
def test_the_numbers_are_described(hosts, text):
    assert describe_counts(make_inventory(hosts)) == text


def test_fewer_hosts_with_tasks_hold_fewer_replicas():
    two = make_inventory(
        "[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1\n", training="replicas = 1"
    )
    one = replanning.limit_replicas(with_counts(two, {"workers": 1}))
    assert one.training.replicas == 0
    assert replanning.limit_replicas(two) == two


def test_no_host_joins_a_run_on_the_controller_alone():
    hosts = make_inventory(
        '[hosts.me]\ntransport = "local"\naddress = "127.0.0.1"\nworkers = 1'
    ).hosts
    with pytest.raises(PlanError, match=r"hosts.me: its address in this run is 127.0.0.1"):
        placing.refuse_loopback(hosts)


@pytest.mark.parametrize("counts", [{"workers": 0}, {"ps": 0, "workers": 0}])
def test_a_run_without_chief_and_worker_is_refused(counts):
    assert refusal(THREE, counts) == "no chief and no worker is left: nothing would train"


def test_a_chief_trains_without_workers():
    assert tasks("[hosts.c]\nchief = true\nworkers = 1\nps = 1\n", {"workers": 0}) == {"c": (1, 0)}
