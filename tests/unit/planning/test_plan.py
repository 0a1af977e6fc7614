"""Placement: hosts, GPUs, the chief, and the messages if no cluster is possible."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.builders import make_plan, plan_refusal

from tfdeploy.config.cluster import Task
from tfdeploy.errors import PlanError
from tfdeploy.planning.plan import PORT_PENDING

CHIEF_HINT = "set chief = true on one host, or workers on any: worker:0 is then the chief"


def placed(hosts):
    """Return {task: (host, port, GPUs)}."""
    return {str(p.task): (p.host, p.port, p.gpus) for p in make_plan(hosts).placements}


# Placement


def test_tasks_are_numbered_in_the_order_of_the_file_and_sorted_by_job():
    assert placed("[hosts.b]\nworkers = 2\n[hosts.a]\nps = 1\nworkers = 1\n[hosts.c]\nps = 1") == {
        "ps:0": ("a", 2222, ()),
        "ps:1": ("c", 2222, ()),
        "worker:0": ("b", 2222, ()),
        "worker:1": ("b", 2223, ()),
        "worker:2": ("a", 2223, ()),
    }
    assert list(placed("[hosts.a]\nworkers = 1\nps = 1\nchief = true\nevaluator = true")) == [
        "ps:0",
        "worker:0",
        "chief:0",
        "evaluator:0",
    ]


@pytest.mark.parametrize(
    ("host", "choice", "names"),
    [
        ("gpus = 4\nworkers = 1", (0, 1, 2, 3), "one of 0-3"),
        ("gpus = 4\nworkers = 1\ngpus_per_worker = 3", (0, 1, 2, 3), "3 of 0-3"),
        ("gpus = 2\nworkers = 2", (), "0"),
        ("gpus = [0, 2]\nworkers = 1", (), "0"),
        ("gpus = 2\nworkers = 1\ngpus_per_worker = 0", (), ""),
    ],
)
def test_the_start_chooses_of_a_count_that_is_larger_than_needed(host, choice, names):
    chief = make_plan(f"[hosts.a]\n{host}").chief
    assert (chief.gpu_choice, chief.gpu_names) == (choice, names)
    assert chief.with_gpus(None) == chief
    assert chief.with_gpus([1]).gpu_names == "1"


def test_the_cluster_spec_leaves_out_evaluators_and_absent_jobs():
    plan = make_plan('[hosts.a]\nworkers = 2\naddress = "10.0.0.1"\n[hosts.b]\nevaluator = true')
    assert plan.cluster == {"worker": ("10.0.0.1:2222", "10.0.0.1:2223")}


def test_placements_on_returns_the_tasks_of_a_host():
    plan = make_plan("[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nworkers = 1\n[hosts.idle]")
    assert plan.hosts == ("a", "b")
    assert [str(p.task) for p in plan.placements_on("a")] == ["ps:0", "worker:0"]
    assert plan.placements_on("idle") == ()


def test_the_hint_for_an_unknown_task_lists_the_tasks():
    with pytest.raises(PlanError) as refused:
        make_plan("[hosts.a]\nps = 1\nworkers = 1").placement(Task("worker", 1))
    assert str(refused.value) == (
        "there is no task worker:1 in this run\n  its tasks are ps:0, worker:0"
    )


# The chief


def test_worker_0_is_the_chief_if_no_host_has_chief():
    assert str(make_plan("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 2").chief.task) == "worker:0"


def test_a_host_with_chief_runs_the_chief():
    plan = make_plan("[hosts.a]\nworkers = 2\n[hosts.b]\nchief = true")
    assert (str(plan.chief.task), plan.chief.host) == ("chief:0", "b")


def test_a_plan_without_chief_and_worker_is_refused():
    assert plan_refusal("[hosts.a]\nps = 1") == (
        "found no chief and no worker: nothing would train",
        CHIEF_HINT,
    )


def test_two_chiefs_are_refused():
    assert plan_refusal("[hosts.a]\nchief = true\n[hosts.b]\nchief = true") == (
        "found 2 hosts with chief = true; expected at most one",
        CHIEF_HINT,
    )


def test_two_evaluators_are_refused():
    assert plan_refusal(
        "[hosts.a]\nworkers = 1\nevaluator = true\n[hosts.b]\nevaluator = true"
    ) == (
        "found 2 hosts with evaluator = true; expected at most one",
        "TensorFlow supports one evaluator: keep one of them",
    )


# Essential tasks


def essential(hosts):
    return [str(p.task) for p in make_plan(hosts).essential]


def test_with_ps_the_essential_tasks_are_every_ps_and_the_chief():
    assert essential("[hosts.a]\nps = 2\nworkers = 2\nevaluator = true") == [
        "ps:0",
        "ps:1",
        "worker:0",
    ]
    assert essential("[hosts.a]\nps = 1\nworkers = 1\nchief = true") == ["ps:0", "chief:0"]


def test_without_ps_every_worker_is_essential():
    assert essential("[hosts.a]\nworkers = 2\nevaluator = true") == ["worker:0", "worker:1"]
    assert essential("[hosts.a]\nworkers = 1\nchief = true") == ["worker:0", "chief:0"]


# GPUs


def gpus(lines):
    return {task: ids for task, (_, _, ids) in placed(f"[hosts.a]\n{lines}").items()}


def test_each_worker_gets_one_gpu_on_a_host_with_gpus():
    assert gpus("gpus = 3\nworkers = 2") == {"worker:0": (0,), "worker:1": (1,)}


def test_gpu_ids_are_assigned_in_the_order_of_the_file():
    assert gpus("gpus = [7, 2, 5]\nworkers = 2\ngpus_per_worker = 1") == {
        "worker:0": (7,),
        "worker:1": (2,),
    }


def test_a_worker_may_have_several_gpus():
    assert gpus("gpus = 4\nworkers = 2\ngpus_per_worker = 2") == {
        "worker:0": (0, 1),
        "worker:1": (2, 3),
    }


def test_ps_and_evaluator_get_no_gpu():
    assert gpus("gpus = 2\nps = 2\nworkers = 1\nevaluator = true") == {
        "ps:0": (),
        "ps:1": (),
        "worker:0": (0,),
        "evaluator:0": (),
    }


def test_the_chief_gets_its_own_gpu():
    assert gpus("gpus = 3\nworkers = 2\nchief = true") == {
        "worker:0": (0,),
        "worker:1": (1,),
        "chief:0": (2,),
    }


def test_a_chief_may_have_no_gpu_or_several():
    none = gpus("gpus = 2\nworkers = 2\nchief = true\ngpus_per_chief = 0")
    two = gpus("gpus = 3\nworkers = 1\nchief = true\ngpus_per_chief = 2")
    assert (none["chief:0"], two["chief:0"]) == ((), (1, 2))


def test_per_gpu_starts_as_many_workers_as_the_gpus_allow():
    assert gpus('gpus = 3\nworkers = "per-gpu"') == {
        "worker:0": (0,),
        "worker:1": (1,),
        "worker:2": (2,),
    }
    assert gpus('gpus = 5\nworkers = "per-gpu"\ngpus_per_worker = 2') == {
        "worker:0": (0, 1),
        "worker:1": (2, 3),
    }


def test_per_gpu_leaves_a_gpu_for_the_chief():
    assert gpus('gpus = 3\nworkers = "per-gpu"\nchief = true') == {
        "worker:0": (0,),
        "worker:1": (1,),
        "chief:0": (2,),
    }


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("", "gpus = 0 and gpus_per_worker = 0"),
        ("gpus = 2\ngpus_per_worker = 0", "gpus = 2 and gpus_per_worker = 0"),
    ],
)
def test_per_gpu_without_gpus_is_refused(lines, found):
    assert plan_refusal(f'[hosts.a]\nworkers = "per-gpu"\n{lines}') == (
        f'hosts.a.workers: "per-gpu" needs GPUs; found {found}',
        "set gpus, for example gpus = 2, or set workers to a number",
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("gpus = 2\nworkers = 3", "3 workers with 1 GPU each need 3 GPUs; found 2 GPUs (ids 0, 1)"),
        (
            "gpus = 2\nworkers = 2\nchief = true",
            "2 workers with 1 GPU each need 2 GPUs; found 2 GPUs (ids 0, 1), "
            "of which the chief takes 1",
        ),
        (
            "workers = 2\ngpus_per_worker = 2",
            "2 workers with 2 GPUs each need 4 GPUs; found no GPU",
        ),
    ],
)
def test_more_workers_than_gpus_are_refused(lines, message):
    assert plan_refusal(f"[hosts.a]\n{lines}") == (
        f"hosts.a: {message}",
        "lower workers, or set gpus_per_worker = 0 for workers that may run without a GPU",
    )


def test_more_workers_than_gpus_are_allowed_with_gpus_per_worker_0():
    assert gpus("gpus = 1\nworkers = 2\ngpus_per_worker = 0") == {"worker:0": (), "worker:1": ()}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("gpus = 1\ngpus_per_chief = 2", "the chief needs 2 GPUs; found 1 GPU (id 0)"),
        ("workers = 0\ngpus_per_chief = 1", "the chief needs 1 GPU; found no GPU"),
    ],
)
def test_a_chief_that_needs_more_gpus_than_its_host_has_is_refused(lines, message):
    assert plan_refusal(f"[hosts.a]\nchief = true\n{lines}") == (
        f"hosts.a: {message}",
        "lower gpus_per_chief",
    )


# Any file


HOST = st.fixed_dictionaries(
    {},
    optional={
        "ps": st.integers(0, 3),
        "workers": st.integers(0, 3) | st.just('"per-gpu"'),
        "gpus": st.integers(0, 8) | st.lists(st.integers(0, 9), unique=True, max_size=6),
        "gpus_per_worker": st.sampled_from([0, 0, 1, 2]),
        "gpus_per_chief": st.sampled_from([0, 0, 1, 2]),
        "chief": st.sampled_from(["true", "false", "false"]),
        "evaluator": st.sampled_from(["true", "false", "false"]),
        "ports": st.sampled_from(['"2222-2299"', '"100-109"', "[5, 3, 4, 9, 6]", '"auto"']),
        "spare": st.sampled_from(["true", "false", "false"]),
        "address": st.sampled_from(['"h1"', '"h2"', '"10.0.0.3"', '"2001:db8::4"']),
    },
)


def plan_of(tables):
    """Return the plan of generated tables; reject tables that make none."""
    lines = [
        f"[hosts.h{number}]\n" + "\n".join(f"{key} = {value}" for key, value in table.items())
        for number, table in enumerate(tables)
    ]
    try:
        return make_plan("\n".join(lines))
    except PlanError:
        reject()


@given(st.lists(HOST, min_size=1, max_size=4))
def test_every_plan_keeps_the_rules_of_a_plan(tables):
    plan = plan_of(tables)
    no_gpu_or_port_is_assigned_twice(plan)
    the_indices_of_each_job_start_at_0(plan)
    spare = {f"h{number}" for number, table in enumerate(tables) if table.get("spare") == "true"}
    assert spare.isdisjoint(plan.hosts)


def no_gpu_or_port_is_assigned_twice(plan):
    for host in plan.hosts:
        ids = list(chain.from_iterable(p.gpus for p in plan.placements_on(host)))
        assert len(ids) == len(set(ids))
    heartbeat = (plan.chief.address, plan.heartbeat_port)
    endpoints = [heartbeat, *((p.address, p.port) for p in plan.placements if p.port is not None)]
    endpoints = [endpoint for endpoint in endpoints if endpoint[1] != PORT_PENDING]
    assert len(endpoints) == len(set(endpoints))


def the_indices_of_each_job_start_at_0(plan):
    tasks = [p.task for p in plan.placements]
    for job, count in Counter(task.job for task in tasks).items():
        assert [task.index for task in tasks if task.job == job] == list(range(count))
    assert tasks == sorted(tasks)
    assert plan.chief in plan.placements
