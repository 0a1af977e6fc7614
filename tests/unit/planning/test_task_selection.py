"""TASK arguments of commands: a task, a job, or several tasks as `status` shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import make_plan

from tfdeploy.errors import PlanError
from tfdeploy.planning import plan

PLAN = make_plan("[hosts.a]\nps = 2\nworkers = 4\n")


@pytest.mark.parametrize(
    ("names", "tasks"),
    [
        ([], "ps:0 ps:1 worker:0 worker:1 worker:2 worker:3"),
        (["worker:1"], "worker:1"),
        (["worker-1"], "worker:1"),
        (["ps"], "ps:0 ps:1"),
        (["worker:3", "ps", "ps:0"], "ps:0 ps:1 worker:3"),
        (["worker:[0-1,3]"], "worker:0 worker:1 worker:3"),
        (["ps:1, worker:[0,2]"], "ps:1 worker:0 worker:2"),
    ],
)
def test_select_placements_returns_tasks_in_the_order_of_the_plan(names, tasks):
    assert " ".join(str(p.task) for p in plan.select_placements(PLAN, names)) == tasks


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (
            "worker:7",
            "there is no task worker:7 in this run",
            "its tasks are ps:[0-1], worker:[0-3]",
        ),
        (
            "worker:[2-5]",
            "there is no task worker:4 in this run",
            "its tasks are ps:[0-1], worker:[0-3]",
        ),
        ("chief", "there is no chief in this run", "its tasks are ps:[0-1], worker:[0-3]"),
        ("wroker", '"wroker" is not a task', "name a task, such as worker:0, or one of the jobs"),
        ("worker:[1", 'worker:[1: expected a "]" after the "["', ""),
    ],
)
def test_a_name_without_a_task_is_refused_with_a_list_of_the_tasks(name, message, hint):
    with pytest.raises(PlanError) as refused:
        plan.select_placements(PLAN, [name])
    assert refused.value.message == message
    assert refused.value.hint.startswith(hint)


SPREAD = make_plan('[hosts."gpu-[1-3]"]\naddress = "10.0.0.[1-3]"\nps = 1\nworkers = 1\n')


@pytest.mark.parametrize(
    ("names", "on", "tasks"),
    [
        ([], ["gpu-2"], "ps:1 worker:1"),
        ([], ["gpu-[2-3]"], "ps:1 ps:2 worker:1 worker:2"),
        (["worker"], ["gpu-3,gpu-1"], "worker:0 worker:2"),
        (["worker:1", "ps"], ["gpu-2"], "ps:1 worker:1"),
    ],
)
def test_tasks_on_hosts_are_selected(names, on, tasks):
    selected = plan.select_placements(SPREAD, names, on)
    assert " ".join(str(p.task) for p in selected) == tasks


def test_an_unknown_host_is_refused_with_a_list_of_the_hosts():
    with pytest.raises(PlanError) as refused:
        plan.select_placements(SPREAD, [], ["gpu-[2-4]"])
    assert str(refused.value) == 'there is no host "gpu-4"\n  the hosts are gpu-1, gpu-2, gpu-3'


def test_a_task_on_other_hosts_is_refused():
    with pytest.raises(PlanError) as refused:
        plan.select_placements(SPREAD, ["worker:0"], ["gpu-2"])
    assert refused.value.message == "worker:0 does not run on gpu-2"


def test_one_task_is_expected_where_several_make_no_sense():
    assert str(plan.select_placement(SPREAD, "worker:2").task) == "worker:2"
    with pytest.raises(PlanError, match=r"^worker: found 3 tasks; expected one"):
        plan.select_placement(SPREAD, "worker")


def test_a_plan_without_tasks_has_none_to_select():
    assert plan.select_placements(replace(PLAN, placements=())) == ()
