"""Select the tasks and hosts that a command's arguments name. Pure.

Arguments may name several, as tfdeploy writes them: `worker:[0-3]`, `gpu-[01-04],gpu-07`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS, Task
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import expand_list, fold_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdeploy.planning.plan import Placement, Plan


def select_placements(
    plan: Plan, names: Sequence[str] = (), on: Sequence[str] = ()
) -> tuple[Placement, ...]:
    """Return the placements of the named tasks on the hosts `on`, in the plan's order; without
    names those of all tasks, and without `on` those on all hosts.

    A name is a task (`worker:1`), a job (`worker`: all of its tasks), or several. Raises PlanError
    for a name that matches no task of the plan, a host without a task, or if nothing is left.
    """
    tasks = {task for name in names for task in _tasks(plan, name)}
    hosts = select_hosts(plan.hosts, on)
    selected = tuple(
        p for p in plan.placements if (not names or p.task in tasks) and p.host in hosts
    )
    if not selected and plan.placements:  # a plan of spare hosts has no task
        named = fold_names(map(str, sorted(tasks)))
        raise PlanError(f"{named} does not run on {fold_names(hosts)}", _tasks_hint(plan))
    return selected


def select_placement(plan: Plan, name: str) -> Placement:
    """Return the placement of the only task that a name matches. Raises PlanError."""
    selected = select_placements(plan, [name])
    if len(selected) > 1:
        tasks = fold_names(str(placement.task) for placement in selected)
        raise PlanError(f"{name}: found {len(selected)} tasks; expected one", f"one of {tasks}")
    return selected[0]


def select_hosts(known: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the named hosts in the order of `known`; without names, all of them.

    Raises PlanError for a name that is not known.
    """
    hosts, named = tuple(known), tuple(names)
    if not named:
        return hosts
    wanted = [host for name in named for host in _expand(name)]
    for host in wanted:
        if host not in hosts:
            raise PlanError(f'there is no host "{host}"', f"the hosts are {fold_names(hosts)}")
    return tuple(host for host in hosts if host in wanted)


def _tasks(plan: Plan, name: str) -> list[Task]:
    return [task for each in _expand(name) for task in _tasks_of_name(plan, each)]


def _tasks_of_name(plan: Plan, name: str) -> list[Task]:
    if name in JOBS:
        return _tasks_of_job(plan, name)
    return [plan.placement(Task.parse(name)).task]


def _tasks_of_job(plan: Plan, job: str) -> list[Task]:
    tasks = [placement.task for placement in plan.placements if placement.task.job == job]
    if not tasks:
        raise PlanError(f"there is no {job} in this run", _tasks_hint(plan))
    return tasks


def _expand(text: str) -> list[str]:
    try:
        return expand_list(text)
    except ValueError as error:
        raise PlanError(f"{text}: {error}") from None


def _tasks_hint(plan: Plan) -> str:
    return f"its tasks are {fold_names(str(placement.task) for placement in plan.placements)}"
