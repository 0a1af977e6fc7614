"""Replan without a lost host: a spare host takes its place, or other hosts take its tasks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.config import AUTO_PORTS, PER_GPU
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.planning.placing import count_tasks, gpus_per_task

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.planning.plan import Plan


def remove_host(inventory: Inventory, lost: str) -> Inventory:
    """Return the inventory without host `lost`.

    The first spare host takes its tasks and its place in the order. Without a spare, the first
    other host takes its ps, chief and evaluator, and its workers are dropped. Raises PlanError if
    there is no such host, or no other one.
    """
    names = [host.name for host in inventory.hosts]
    if lost not in names:
        raise PlanError(
            f'there is no host "{lost}" in this run', f"its hosts are {fold_names(names)}"
        )
    lost_host = inventory.host(lost)
    spare = next((h for h in inventory.hosts if h.spare and h.name != lost), None)
    if lost_host.spare:
        hosts = _hosts_without(inventory, lost)
    elif spare:
        hosts = tuple(
            _replace_by_spare(lost_host, spare) if host.name == lost else host
            for host in inventory.hosts
            if host.name != spare.name
        )
    else:
        hosts = _move_tasks(lost_host, _hosts_without(inventory, lost))
    return limit_replicas(inventory.copy_with({"hosts": hosts}))


def limit_replicas(inventory: Inventory) -> Inventory:
    """Return the inventory with no more replicas than hosts that run tasks besides the chief's."""
    running = [h for h in inventory.hosts if not h.spare and any(count_tasks(h).values())]
    replicas = max(0, min(inventory.training.replicas, len(running) - 1))
    if replicas == inventory.training.replicas:
        return inventory
    training = inventory.training.copy_with({"replicas": replicas})
    return inventory.copy_with({"training": training})


def rotate_ports(inventory: Inventory, plan: Plan) -> Inventory:
    """Move the ports that `plan` used behind the other ports of each host.

    A host that only seemed lost may still run tasks: they connect to the old ports, and must not
    reach the new tasks.
    """
    hosts = tuple(_rotate_ports_of(host, plan) for host in inventory.hosts)
    return inventory.copy_with({"hosts": hosts})


def _hosts_without(inventory: Inventory, lost: str) -> tuple[Host, ...]:
    return tuple(host for host in inventory.hosts if host.name != lost)


def _replace_by_spare(lost_host: Host, spare: Host) -> Host:
    tasks = {key: getattr(lost_host, key) for key in ("ps", "workers", "chief", "evaluator")}
    return spare.copy_with({**tasks, "spare": False})


def _move_tasks(lost_host: Host, others: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return the other hosts; the first takes the lost host's ps, chief and evaluator."""
    candidates = [host for host in others if not host.spare]
    if not candidates:
        raise PlanError(
            f"no host is left without {lost_host.name}",
            "add a host to hosts.toml and start a new run",
        )
    first = candidates[0]
    heir = first.copy_with(
        {
            "ps": first.ps + lost_host.ps,
            "chief": first.chief or lost_host.chief,
            "evaluator": first.evaluator or lost_host.evaluator,
        }
    )
    heir = heir.copy_with({"workers": _workers_with_gpus(heir)})
    return tuple(heir if host.name == first.name else host for host in others)


def _workers_with_gpus(host: Host) -> int:
    """Return the number of its workers, without those whose GPUs a chief has taken."""
    per_worker = gpus_per_task("worker", host)
    chief_gpus = host.chief * gpus_per_task("chief", host)
    if host.workers == PER_GPU or not per_worker:
        return host.workers
    return min(host.workers, max(0, len(host.gpus) - chief_gpus) // per_worker)


def _rotate_ports_of(host: Host, plan: Plan) -> Host:
    if host.ports == AUTO_PORTS:
        return host
    used = {p.port for p in plan.placements_on(host.name)} | {plan.heartbeat_port}
    free = tuple(port for port in host.ports if port not in used)
    reused = tuple(port for port in host.ports if port in used)
    return host.copy_with({"ports": (*free, *reused)})
