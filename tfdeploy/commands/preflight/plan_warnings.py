"""Find what a plan probably does not intend: `plan`, `check` and `start` warn about it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.agent.records import OPEN
from tfdeploy.errors import HostError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import format_count, shorten_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.plan import Intent
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.planning.plan import Plan


def plan_warnings(intent: Intent) -> list[TfdeployError]:
    """Return the warnings about an intent."""
    return [
        *_missing_chief(intent.inventory, intent.plan),
        *_unused_gpus(intent),
        *_open_ports(intent.inventory, intent.plan),
    ]


def unlisted_gpus(host: str, count: int) -> HostError:
    """Return the warning that a host has `count` GPUs and hosts.toml lists none."""
    return HostError(
        host,
        f"it has {format_count(count, 'GPU')}, but hosts.toml lists none: its tasks see no GPU",
        f"gpus = {count} gives them to its workers",
    )


def _missing_chief(inventory: Inventory, plan: Plan) -> Iterator[TfdeployError]:
    """Warn if no task trains, for a script that knows its role from TF_CONFIG only: so do scripts
    with ParameterServerStrategy."""
    only_tf_config = inventory.training.role == "tf_config"
    if only_tf_config and "ps" in plan.cluster and plan.chief.task.job != "chief":
        yield TfdeployError(
            "no host has chief = true: with ParameterServerStrategy, workers and ps only serve, "
            "and no task trains",
            "chief = true on one host starts a chief; a script whose worker:0 trains needs none",
        )


def _open_ports(inventory: Inventory, plan: Plan) -> Iterator[TfdeployError]:
    endpoints = [placement.endpoint for placement in plan.placements if placement.port]
    if inventory.network == OPEN and endpoints:
        yield TfdeployError(
            f'network = "open": anyone who reaches {shorten_names(endpoints)} can run programs '
            "there as the tasks' user",
            'network = "guarded", the default, admits only the hosts of the run',
        )


def _unused_gpus(intent: Intent) -> Iterator[HostError]:
    used: dict[str, set[int]] = {}
    for placement in intent.plan.placements:
        used.setdefault(placement.host, set()).update(placement.gpus)
    for host in intent.inventory.hosts:
        unused = [str(gpu) for gpu in host.gpus if gpu not in used.get(host.name, set())]
        if unused and not host.spare:
            yield HostError(
                host.name,
                f"no task uses its {'GPU' if len(unused) == 1 else 'GPUs'} {fold_names(unused)}",
                'workers = "per-gpu" starts a worker for each GPU; or remove them from its gpus',
            )
