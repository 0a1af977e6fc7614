"""TASK arguments of commands: a task, a job, or several tasks as `status` shows them."""

from __future__ import annotations

import pytest

from tfdeploy.errors import PlanError
from tfdeploy.planning import task_selection
from unit.builders import make_plan

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
    ],
)
def test_select_placements_returns_tasks_in_the_order_of_the_plan(names, tasks):
    assert " ".join(str(p.task) for p in task_selection.select_placements(PLAN, names)) == tasks


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("worker:7", "there is no task worker:7 in this run", "its tasks are ps:0, ps:1, "),
        ("worker:[2-5]", "there is no task worker:4 in this run", "its tasks are ps:0, "),
        ("chief", "there is no chief in this run", "its tasks are ps:[0-1], worker:[0-3]"),
        ("wroker", '"wroker" is not a task', "name a task, such as worker:0, or one of the jobs"),
        ("worker:[1", 'worker:[1: expected a "]" after the "["', ""),
    ],
)
def test_a_name_without_a_task_is_refused_with_a_list_of_the_tasks(name, message, hint):
    with pytest.raises(PlanError) as refused:
        task_selection.select_placements(PLAN, [name])
    assert refused.value.message == message
    assert refused.value.hint.startswith(hint)
