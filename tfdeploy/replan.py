"""A host is gone: a spare takes its place, or those that are left share what it carried. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError
from tfdeploy.fields import AUTO, PER_GPU
from tfdeploy.hostnames import folded
from tfdeploy.plan import gpus_of

if TYPE_CHECKING:
    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Plan


def without(inventory: Inventory, lost: str) -> Inventory:
    """The inventory without host `lost`. The first spare host carries what the lost one carried,
    at its place in the order; without a spare, its ps, chief and evaluator move to the first host
    that is left, and its workers are no more. Raises PlanError where that leaves nothing to train.
    """
    names = [host.name for host in inventory.hosts]
    if lost not in names:
        hint = f"its hosts are {folded(names)}"
        raise PlanError(f'there is no host "{lost}" in this run', hint)
    gone = inventory.host(lost)
    spare = next((h for h in inventory.hosts if h.spare and h.name != lost), None)
    if gone.spare:
        hosts = _less(inventory, lost)
    elif spare:
        hosts = tuple(
            _in_place_of(gone, spare) if host.name == lost else host
            for host in inventory.hosts
            if host.name != spare.name
        )
    else:
        hosts = _adopted(gone, _less(inventory, lost))
    others = sum(not host.spare for host in hosts) - 1  # besides the chief's
    replicas = max(0, min(inventory.training.replicas, others))
    training = inventory.training.model_copy(update={"replicas": replicas})
    return inventory.model_copy(update={"hosts": hosts, "training": training})


def on_other_ports(inventory: Inventory, plan: Plan) -> Inventory:
    """Every host with the ports that `plan` used behind the others: what may still live on a host
    that only seemed to be gone dials the old ones, and must not reach the new tasks."""
    hosts = tuple(_rotated(host, plan) for host in inventory.hosts)
    return inventory.model_copy(update={"hosts": hosts})


def _less(inventory: Inventory, lost: str) -> tuple[Host, ...]:
    return tuple(host for host in inventory.hosts if host.name != lost)


def _in_place_of(gone: Host, spare: Host) -> Host:
    carried = {key: getattr(gone, key) for key in ("ps", "workers", "chief", "evaluator")}
    return spare.model_copy(update={**carried, "spare": False})


def _adopted(gone: Host, left: tuple[Host, ...]) -> tuple[Host, ...]:
    heirs = [host for host in left if not host.spare]
    if not heirs:
        raise PlanError(f"no host is left without {gone.name}", "add one to hosts.toml, run anew")
    first = heirs[0]
    heir = first.model_copy(
        update={
            "ps": first.ps + gone.ps,
            "chief": first.chief or gone.chief,
            "evaluator": first.evaluator or gone.evaluator,
        }
    )
    heir = heir.model_copy(update={"workers": _that_fit(heir)})
    return tuple(heir if host.name == first.name else host for host in left)


def _that_fit(host: Host) -> int:
    """Its workers, less those whose GPUs a chief has taken that wasn't there before."""
    each, chiefs = gpus_of("worker", host), host.chief * gpus_of("chief", host)
    if host.workers == PER_GPU or not each:
        return host.workers
    return min(host.workers, max(0, len(host.gpus) - chiefs) // each)


def _rotated(host: Host, plan: Plan) -> Host:
    used = {p.port for p in plan.on(host.name)} | {plan.beacon_port}
    free = tuple(port for port in host.ports if port not in used)
    again = tuple(port for port in host.ports if port in used)
    return host if host.ports == AUTO else host.model_copy(update={"ports": (*free, *again)})
