"""place = "free": look which hosts have free GPUs, and plan on the fewest of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.commands.hosts import look
from tfdeploy.commands.plan import plan_all
from tfdeploy.errors import PlanError, raise_all
from tfdeploy.planning import free_hosts

if TYPE_CHECKING:
    from tfdeploy.commands.plan import Intent, RunOptions
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.fleet import Fleet


def plan_on_free(fleet: Fleet, inventory: Inventory, options: RunOptions) -> Intent:
    """Ask the hosts which GPUs are free, and plan. Raises PlanError if there are too few, with the
    errors of hosts that did not answer."""
    counts = dict(options.counts)
    workers = counts.pop("workers", inventory.training.workers)
    names = [host.name for host in free_hosts.candidates(inventory)]
    if not inventory.training.place or not workers:
        raise PlanError(
            'training: place = "free" and workers, their number, need each other',
            "set both, or give the hosts their workers",
        )
    seen = look(fleet, names, ())
    free = {
        each.host: [gpu.index for gpu in each.state.gpus if gpu.free]
        for each in seen.hosts
        if each.state
    }
    try:
        chosen, why = free_hosts.choose(inventory, free, workers)
    except PlanError as error:
        raise_all([error, *seen.errors])
        raise
    intent = plan_all(chosen, replace(options, counts=counts))
    return replace(intent, options=options, placed=why, all_hosts=inventory)
