"""Give the same hosts other numbers of ps and workers, for a run that is measured. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS as ALL_JOBS
from tfdeploy.planning.task_counts import JOBS, with_counts

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory, Restart


def rescale(inventory: Inventory, ps: int, workers: int, limit_s: float) -> Inventory:
    """Return the inventory with these numbers of ps and workers, placed as with_counts does.

    Left out are hosts without a task, the evaluator, replicas, and restarts: a task that fails is
    a result of the measurement.

    `save_on_stop` is set, because a session writes its last events when it exits in order.
    `max_duration_s` is at most `limit_s`, in case nothing is left that could stop the run. Raises
    PlanError if the tasks don't fit.
    """
    hosts = with_counts(inventory, {"ps": ps, "workers": workers}).hosts
    limit_s = min(limit_s, inventory.training.max_duration_s or limit_s)
    training = {"replicas": 0, "save_on_stop": True, "max_duration_s": limit_s}
    rescaled = inventory.copy_with(
        {
            "hosts": tuple(_without_evaluator(host) for host in hosts if trains(host)),
            "restart": _without_restarts(inventory.restart),
            "training": inventory.training.copy_with(training),
        }
    )
    return _without_unread_data(rescaled)


def trains(host: Host) -> bool:
    """Return whether the host has tasks that train, so that a measured run may use it."""
    return not host.spare and bool(host.ps or host.workers or host.chief)


def _without_evaluator(host: Host) -> Host:
    return host.copy_with({"evaluator": False})


def _without_restarts(restart: Restart) -> Restart:
    """Set the attempts of all jobs to 0; keep everything else."""
    jobs = {job: getattr(restart, job).copy_with({"attempts": 0}) for job in ALL_JOBS}
    return restart.copy_with({"attempts": 0, **jobs})


def _without_unread_data(inventory: Inventory) -> Inventory:
    """Leave out the data sets that none of the remaining tasks reads."""
    hosts = inventory.hosts
    jobs = {job for key, job in JOBS.items() if any(getattr(host, key) for host in hosts)}
    jobs |= {"chief"} if any(host.chief for host in hosts) else set()
    data = {place: each for place, each in inventory.data.items() if jobs & {*each.jobs}}
    return inventory.copy_with({"data": data})
