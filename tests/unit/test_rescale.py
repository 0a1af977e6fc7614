"""Other numbers of ps and workers on the hosts there are: who carries them, and what can't be."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from tfdeploy import plan as plans
from tfdeploy import rescale
from tfdeploy.errors import PlanError
from unit.made import FILE, inventory

LIMIT_S = 300.0
THREE = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 2\n[hosts.c]\nworkers = 1\n"


def addressed(made):
    hosts = (h.model_copy(update={"address": h.address or h.name}) for h in made.hosts)
    return made.model_copy(update={"hosts": tuple(hosts)})


def rescaled(hosts, ps, workers, **more):
    made = addressed(inventory(hosts, **more))
    return rescale.to(made, plans.remake(made), ps, workers, LIMIT_S)


def placed(hosts, ps, workers):
    """{task: host} of what they carry then."""
    plan = plans.remake(rescaled(hosts, ps, workers))
    return {str(p.task): p.host for p in plan.placements}


def refused(hosts, ps, workers):
    with pytest.raises(PlanError) as error:
        plans.remake(rescaled(hosts, ps, workers))
    return error.value


# Fewer


def test_the_first_ones_stay_where_they_are():
    assert placed(THREE, 1, 2) == {"ps:0": "a", "worker:0": "b", "worker:1": "b"}
    assert placed(THREE, 1, 3) == {
        "ps:0": "a", "worker:0": "b", "worker:1": "b", "worker:2": "c",
    }  # fmt: skip


def test_a_host_without_a_task_goes():
    assert [host.name for host in rescaled(THREE, 1, 1).hosts] == ["a", "b"]


def test_without_ps_the_workers_are_alone():
    assert placed(THREE, 0, 2) == {"worker:0": "b", "worker:1": "b"}


# More


def test_more_go_in_turn_to_those_that_carry_some():
    assert placed(THREE, 2, 6) == {
        "ps:0": "a", "ps:1": "a",
        "worker:0": "b", "worker:1": "b", "worker:2": "b", "worker:3": "b",
        "worker:4": "c", "worker:5": "c",
    }  # fmt: skip
    assert [h.workers for h in rescaled(THREE, 1, 4).hosts] == [0, 3, 1]
    assert [h.workers for h in rescaled(THREE, 1, 5).hosts] == [0, 3, 2]


def test_as_many_as_there_are_gpus():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\ngpus = 2\n[hosts.c]\nworkers = 1\ngpus = 4\n"
    assert [host.workers for host in rescaled(two, 1, 6).hosts] == [0, 2, 4]
    error = refused(two, 1, 7)
    assert error.message == ("found room for 6 workers on b, c, as far as their ports and GPUs go")
    assert error.hint == "ask for fewer, or let more hosts carry workers"


def test_per_gpu_becomes_a_number():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nworkers = 'per-gpu'\ngpus = 4\ngpus_per_worker = 2\n"
    assert [host.workers for host in rescaled(two, 1, 1).hosts] == [0, 1]
    assert refused(two, 1, 3).message.startswith("found room for 2 workers on b")


def test_a_chief_of_its_own_stays_with_its_gpu():
    two = "[hosts.a]\nps = 1\n[hosts.b]\nchief = true\ngpus = 2\nworkers = 1\n"
    assert placed(two, 1, 1) == {"ps:0": "a", "worker:0": "b", "chief:0": "b"}
    assert refused(two, 1, 2).message.startswith("found room for 1 worker on b")


def test_as_many_as_there_are_ports_and_one_for_the_run():
    one = '[hosts.a]\nps = 1\nworkers = 1\nports = "2222-2226"\n'
    assert len(placed(one, 2, 2)) == 4
    assert refused(one, 1, 4).message.startswith("found room for 3 workers on a")
    assert refused(one, 4, 1).message.startswith("found room for 3 ps on a")


def test_ports_that_are_found_later_are_no_limit():
    assert len(placed('[hosts.a]\nps = 1\nworkers = 1\nports = "auto"\n', 20, 90)) == 110


def test_where_nobody_carries_any_there_are_none():
    error = refused("[hosts.a]\nworkers = 2\n", 1, 1)
    assert (error.message, error.hint) == ("no host carries ps", "say ps = 1 on a host that may")


# What else is another


def test_evaluator_and_spares_replicas_and_restarts_are_left_out():
    hosts = THREE + "[hosts.e]\nevaluator = true\n[hosts.s]\nspare = true\n"
    top = "[restart]\nfrozen_timeout_s = 30\n[restart.worker]\nattempts = 20\n"
    made = rescaled(hosts, 1, 3, training="replicas = 1\nstop_grace_s = 3", top=top)
    assert [host.name for host in made.hosts] == ["a", "b", "c"]
    assert (made.training.replicas, made.training.stop_grace_s) == (0, 3)
    policies = [made.restart.of(job) for job in ("ps", "worker", "chief")]
    assert [policy.attempts for policy in policies] == [0, 0, 0]
    assert [policy.frozen_timeout_s for policy in policies] == [30, 30, 30]


def test_it_ends_by_itself_at_the_latest():
    assert rescaled(THREE, 1, 3).training.max_duration_s == LIMIT_S
    users = rescaled(THREE, 1, 3, training="max_duration_s = 9")
    assert users.training.max_duration_s == 9
    longer = rescaled(THREE, 1, 3, training="max_duration_s = 900")
    assert longer.training.max_duration_s == LIMIT_S


def test_an_evaluator_beside_a_worker_goes_alone():
    hosts = "[hosts.a]\nps = 1\nworkers = 1\nevaluator = true\n"
    assert "evaluator:0" not in placed(hosts, 1, 1)


def test_data_that_nobody_is_left_to_read_stays_at_home():
    top = '[data.d]\njobs = ["worker"]\n[data.e]\njobs = ["evaluator"]\n[data.p]\njobs = ["ps"]\n'
    assert list(rescaled(THREE, 1, 1, top=top).data) == ["d", "p"]
    assert list(rescaled(THREE, 0, 1, top=top).data) == ["d"]


def test_it_is_written_and_read_as_any_other():
    made = rescaled(THREE, 2, 4)
    assert inventories.parse(inventories.dump(made), FILE) == made
