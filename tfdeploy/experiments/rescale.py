"""Give the same hosts other numbers of ps and workers, for a run that is measured. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS
from tfdeploy.config.types import AUTO_PORTS
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import format_count
from tfdeploy.planning.placing import gpus_per_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.config.inventory import Host, Inventory, Restart
    from tfdeploy.planning.plan import Plan

KEYS = {"ps": "ps", "worker": "workers"}
NO_LIMIT = 1 << 30


def rescale(inventory: Inventory, plan: Plan, ps: int, workers: int, limit_s: float) -> Inventory:
    """Return the inventory with the first `ps` ps and the first `workers` workers of its `plan`.

    If the plan has fewer, its hosts that run such tasks run more of them, in turn, as far as their
    GPUs and ports allow. A chief of its own stays. Left out are hosts without a task, the
    evaluator, replicas, and restarts: a task that fails is a result of the measurement.

    `save_on_stop` is set, because a session writes its last events when it exits in order.
    `max_duration_s` is at most `limit_s`, in case nothing is left that could stop the run. Raises
    PlanError if the tasks don't fit.
    """
    remaining_workers = Counter(_hosts_of_job(plan, "worker")[:workers])
    ps_counts = _distribute(inventory, plan, "ps", ps, remaining_workers)
    worker_counts = _distribute(inventory, plan, "worker", workers, ps_counts)
    hosts = (
        _with_tasks(host, ps_counts[host.name], worker_counts[host.name])
        for host in inventory.hosts
    )
    limit_s = min(limit_s, inventory.training.max_duration_s or limit_s)
    training = {"replicas": 0, "save_on_stop": True, "max_duration_s": limit_s}
    rescaled = inventory.model_copy(
        update={
            "hosts": tuple(host for host in hosts if host.ps or host.workers or host.chief),
            "restart": _without_restarts(inventory.restart),
            "training": inventory.training.model_copy(update=training),
        }
    )
    return _without_unread_data(rescaled)


def _hosts_of_job(plan: Plan, job: str) -> list[str]:
    """Return the host of each task of a job, in the order of the tasks."""
    return [p.host for p in plan.placements if p.task.job == job]


def _distribute(
    inventory: Inventory, plan: Plan, job: str, count: int, others: Mapping[str, int]
) -> Counter[str]:
    """Return how many tasks of a job each host runs, beside its number of `others`."""
    hosts = _hosts_of_job(plan, job)
    counts = Counter(hosts[:count])
    capacity = {name: _capacity(inventory.host(name), job, plan, others[name]) for name in hosts}
    while counts.total() < count:
        free = [name for name in capacity if counts[name] < capacity[name]]
        if not free:
            raise _no_capacity(job, counts.total(), list(capacity))
        counts.update(free[: count - counts.total()])
    return counts


def _capacity(host: Host, job: str, plan: Plan, others: int) -> int:
    """Return how many tasks of a job the host has ports and GPUs for. The run itself needs a port
    on the chief's host."""
    ports = len(host.ports) - host.chief - (host.name == plan.chief.host) - others
    gpus = len(host.gpus) - host.chief * gpus_per_task("chief", host)
    per_task = gpus_per_task(job, host)
    port_limit = NO_LIMIT if host.ports == AUTO_PORTS else ports
    return min(port_limit, gpus // per_task if per_task else NO_LIMIT)


def _no_capacity(job: str, count: int, hosts: list[str]) -> PlanError:
    key = KEYS[job]
    if not hosts:
        return PlanError(f"no host runs {key}", f"set {key} = 1 on a host")
    tasks = f"{count} ps" if job == "ps" else format_count(count, job)
    return PlanError(
        f"the ports and GPUs of {fold_names(hosts)} suffice for only {tasks}",
        f"choose fewer, or set {key} on more hosts",
    )


def _with_tasks(host: Host, ps: int, workers: int) -> Host:
    tasks = {"ps": ps, "workers": workers, "evaluator": False, "spare": False}
    return host.model_copy(update=tasks)


def _without_restarts(restart: Restart) -> Restart:
    """Set the attempts of all jobs to 0; keep everything else."""
    jobs = {job: getattr(restart, job).model_copy(update={"attempts": 0}) for job in JOBS}
    return restart.model_copy(update={"attempts": 0, **jobs})


def _without_unread_data(inventory: Inventory) -> Inventory:
    """Leave out the data sets that none of the remaining tasks reads."""
    hosts = inventory.hosts
    jobs = {job for job, key in KEYS.items() if any(getattr(host, key) for host in hosts)}
    jobs |= {"chief"} if any(host.chief for host in hosts) else set()
    data = {place: each for place, each in inventory.data.items() if jobs & {*each.jobs}}
    return inventory.model_copy(update={"data": data})
