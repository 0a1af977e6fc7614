"""The same hosts with other numbers of ps and workers, for a run that is to be measured. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS
from tfdeploy.errors import PlanError
from tfdeploy.fields import AUTO
from tfdeploy.hostnames import folded
from tfdeploy.plan import gpus_of
from tfdeploy.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.inventory import Host, Inventory, Restart
    from tfdeploy.plan import Plan

KEYS = {"ps": "ps", "worker": "workers"}
NO_LIMIT = 1 << 30


def to(inventory: Inventory, plan: Plan, ps: int, workers: int, limit_s: float) -> Inventory:
    """The inventory with the first so many ps and workers of its `plan`. Where that has fewer, the
    hosts that carry some carry more of them, in turn, as far as their GPUs and ports go.

    A chief of its own stays. Hosts without a task go, and so do the evaluator, replicas and
    restarts: a task that falls is a result. Whoever is asked to stop ends in order, for that is
    when a session writes its last events. It lasts `limit_s` at most, though nobody is left to stop
    it. Raises PlanError.
    """
    kept = Counter(_carriers(plan, "worker")[:workers])
    ps_on = _spread(inventory, plan, "ps", ps, kept)
    workers_on = _spread(inventory, plan, "worker", workers, ps_on)
    hosts = (_carrying(host, ps_on[host.name], workers_on[host.name]) for host in inventory.hosts)
    limit_s = min(limit_s, inventory.training.max_duration_s or limit_s)
    training = {"replicas": 0, "save_on_stop": True, "max_duration_s": limit_s}
    rescaled = inventory.model_copy(
        update={
            "hosts": tuple(host for host in hosts if host.ps or host.workers or host.chief),
            "restart": _never(inventory.restart),
            "training": inventory.training.model_copy(update=training),
        }
    )
    return _without_idle_data(rescaled)


def _carriers(plan: Plan, job: str) -> list[str]:
    """The host of each task of a job, in the tasks' order."""
    return [p.host for p in plan.placements if p.task.job == job]


def _spread(
    inventory: Inventory, plan: Plan, job: str, wanted: int, others: Mapping[str, int]
) -> Counter[str]:
    """How many tasks of a job each host carries, beside the `others` that it carries."""
    carriers = _carriers(plan, job)
    counts = Counter(carriers[:wanted])
    room = {name: _room(inventory.host(name), job, plan, others[name]) for name in carriers}
    while counts.total() < wanted:
        free = [name for name in room if counts[name] < room[name]]
        if not free:
            raise _no_room(job, counts.total(), list(room))
        counts.update(free[: wanted - counts.total()])
    return counts


def _room(host: Host, job: str, plan: Plan, others: int) -> int:
    """How many tasks of a job there are ports and GPUs for. The run itself takes a port where its
    chief is."""
    ports = len(host.ports) - host.chief - (host.name == plan.chief.host) - others
    gpus, each = len(host.gpus) - host.chief * gpus_of("chief", host), gpus_of(job, host)
    return min(NO_LIMIT if host.ports == AUTO else ports, gpus // each if each else NO_LIMIT)


def _no_room(job: str, found: int, hosts: list[str]) -> PlanError:
    key = KEYS[job]
    if not hosts:
        return PlanError(f"no host carries {key}", f"say {key} = 1 on a host that may")
    room = f"{found} ps" if job == "ps" else counted(found, job)
    return PlanError(
        f"found room for {room} on {folded(hosts)}, as far as their ports and GPUs go",
        f"ask for fewer, or let more hosts carry {key}",
    )


def _carrying(host: Host, ps: int, workers: int) -> Host:
    carried = {"ps": ps, "workers": workers, "evaluator": False, "spare": False}
    return host.model_copy(update=carried)


def _never(restart: Restart) -> Restart:
    """No restarts for any job; what else is said of them stays."""
    jobs = {job: getattr(restart, job).model_copy(update={"attempts": 0}) for job in JOBS}
    return restart.model_copy(update={"attempts": 0, **jobs})


def _without_idle_data(inventory: Inventory) -> Inventory:
    """Less the data sets that no task is left to read."""
    hosts = inventory.hosts
    jobs = {job for job, key in KEYS.items() if any(getattr(host, key) for host in hosts)}
    jobs |= {"chief"} if any(host.chief for host in hosts) else set()
    data = {place: each for place, each in inventory.data.items() if jobs & {*each.jobs}}
    return inventory.model_copy(update={"data": data})
