"""Select the tasks that a command's TASK arguments name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS, Task
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import expand_names, fold_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.planning.plan import Placement, Plan


def select_placements(plan: Plan, names: Sequence[str]) -> tuple[Placement, ...]:
    """Return the placements of the named tasks in the plan's order; without names, all of them.

    A name is a task (`worker:1`), a job (`worker`: all of its tasks), or several tasks as `status`
    shows them (`worker:[0-3]`). Raises PlanError for a name that matches no task of the plan.
    """
    if not names:
        return plan.placements
    tasks = {task for name in names for task in _tasks(plan, name)}
    return tuple(placement for placement in plan.placements if placement.task in tasks)


def _tasks(plan: Plan, name: str) -> list[Task]:
    if name in JOBS:
        return _tasks_of_job(plan, name)
    try:
        tasks = [Task.parse(text) for text in expand_names(name)]
    except ValueError as error:
        raise PlanError(f"{name}: {error}") from None
    return [plan.placement(task).task for task in tasks]


def _tasks_of_job(plan: Plan, job: str) -> list[Task]:
    tasks = [placement.task for placement in plan.placements if placement.task.job == job]
    if not tasks:
        names = fold_names(str(placement.task) for placement in plan.placements)
        raise PlanError(f"there is no {job} in this run", f"its tasks are {names}")
    return tasks
