"""`workers` in [training]: look which hosts have free GPUs, and plan on the fewest of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.commands.hosts import look
from tfdeploy.commands.plan import plan_all
from tfdeploy.errors import PlanError, raise_all
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.planning import free_hosts

if TYPE_CHECKING:
    from tfdeploy.commands.intent import Intent, RunOptions
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.fleet import Fleet


def plan_on_free(fleet: Fleet, inventory: Inventory, options: RunOptions) -> Intent:
    """Ask the hosts which GPUs are free, and plan. Raises PlanError if there are too few, with the
    errors of hosts that did not answer."""
    counts = dict(options.counts)
    workers = counts.pop("workers", inventory.training.workers or 0)
    names = [host.name for host in free_hosts.candidates(inventory)]
    result = look(fleet, names, ())
    free = {
        each.host: [gpu.index for gpu in each.state.gpus if gpu.free]
        for each in result.hosts
        if each.state
    }
    try:
        chosen, why = free_hosts.choose(inventory, free, workers)
    except PlanError as error:
        raise_all([error, *result.errors])
        raise
    if silent := [each.host for each in result.hosts if not each.state]:
        why += f"; no answer from {fold_names(silent)}"
    intent = plan_all(chosen, replace(options, counts=counts))
    return replace(intent, options=options, placed=why, all_hosts=inventory)
