"""`workers` in [training]: give them to the fewest hosts that have enough free GPUs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import format_count
from tfdeploy.planning.placing import count_tasks
from tfdeploy.planning.replanning import worker_capacity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.config.inventory import Host, Inventory


def candidates(inventory: Inventory) -> list[Host]:
    """Return the hosts that may get workers. Raises PlanError if hosts.toml places them itself, or
    if no host has GPUs."""
    for host in inventory.hosts:
        if host.workers and not host.spare:
            raise PlanError(
                f"hosts.{host.name}.workers: found {host.workers}; with workers in [training], "
                "the start places all of them",
                "leave one of them out",
            )
    found = [host for host in inventory.hosts if host.gpus and not host.spare]
    if not found:
        hint = "set their number for each host, such as gpus = 4"
        raise PlanError("training.workers: found no host with gpus", hint)
    return found


def choose(
    inventory: Inventory, free: Mapping[str, Sequence[int]], workers: int
) -> tuple[Inventory, str]:
    """Return the inventory with workers on the fewest of its candidates, without those that get
    none; and which ones were chosen, and why.

    `free` has the indexes of each host's free GPUs; of equal hosts the first ones are taken. Raises
    PlanError if there are not enough.
    """
    usable = {
        host.name: host.copy_with({"gpus": gpus})
        for host in candidates(inventory)
        if (gpus := tuple(gpu for gpu in host.gpus if gpu in free.get(host.name, ())))
    }
    room = {name: worker_capacity(usable[name]) for name in free if name in usable}
    chosen, left = dict[str, int](), workers
    while left and any(room.values()):
        fitting = [name for name in room if room[name] >= left]
        name = min(fitting, key=room.__getitem__) if fitting else max(room, key=room.__getitem__)
        chosen[name] = min(left, room.pop(name))
        left -= chosen[name]
    if left:
        raise _too_few(workers, workers - left, usable)
    hosts = (_with_workers(host, usable, chosen) for host in inventory.hosts)
    used = tuple(host for host in hosts if host.spare or any(count_tasks(host).values()))
    counts = {h: format_count(len(inventory.host(h).gpus), "GPU") for h in chosen}
    shares = (f"{n} on {h} ({len(usable[h].gpus)} of {counts[h]} free)" for h, n in chosen.items())
    why = f"training.workers: {format_count(workers, 'worker')} on the fewest hosts: "
    # The record of the run says it by its hosts: it can be started again.
    training = inventory.training.copy_with({"workers": None})
    return inventory.copy_with({"hosts": used, "training": training}), why + ", ".join(shares)


def _with_workers(host: Host, usable: Mapping[str, Host], chosen: Mapping[str, int]) -> Host:
    """Return a host with its workers. Of a count of GPUs it takes free ones when it starts; of a
    list, those that were free when it was asked."""
    if host.name not in chosen:
        return host
    gpus = host.gpus if isinstance(host.gpus, range) else usable[host.name].gpus
    return host.copy_with({"workers": chosen[host.name], "gpus": gpus})


def _too_few(workers: int, found: int, usable: Mapping[str, Host]) -> PlanError:
    wanted = format_count(workers, "worker")
    if not usable:
        message = f"training.workers: expected free GPUs for {wanted}; found none"
        return PlanError(message, "tfdeploy hosts shows who uses them")
    free = ", ".join(f"{len(each.gpus)} on {name}" for name, each in usable.items())
    return PlanError(
        f"training.workers: expected room for {wanted}; found room for {found}, with these free "
        f"GPUs: {free}",
        "tfdeploy hosts shows who uses the others"
        + (f"; --with workers={found} starts fewer" if found else ""),
    )
