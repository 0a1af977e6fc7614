"""`tfdeploy scale`: continue a live run with other numbers of ps and workers, and measure the cost.

TensorFlow's cluster spec is fixed while a run trains. So the run stops, is planned again, and
continues from its newest checkpoint.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.commands.changing import changing
from tfdeploy.commands.plan import address
from tfdeploy.commands.resume import ACTIVE, Changes, ResumeResult, resume, resume_command
from tfdeploy.commands.status import status
from tfdeploy.errors import PlanError, RunError
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.planning.plan import select_hosts
from tfdeploy.planning.replanning import JOBS, describe_counts, without_tasks

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport


@dataclass(frozen=True)
class ScaleResult:
    """The run that continues with other numbers of tasks."""

    __repr__ = short_repr
    KEYS = ("resumed", "before", "after")
    MERGED: ClassVar = {"resumed": ResumeResult}

    before: str
    """The numbers of tasks before, in words."""
    after: str
    """The numbers of tasks now, in words."""
    resumed: ResumeResult


def scale(
    run: Run,
    changes: Changes,
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
    transfers: Transfers | None = None,
    cancel: threading.Event | None = None,
) -> ScaleResult:
    """Stop a live run and resume it with the `changes`. `cancel` is as for `resume`.

    Raises RunError if the run is not live, and what `resume` raises.
    """
    with changing(
        run, cancel=cancel
    ):  # else it may be stopped now, as another controller starts it again
        _refuse_ended(run, changes, cancel)  # asks the hosts, one of which may have a newer record
    _refuse_no_change(run, changes)
    resumed = resume(run, changes, on_report, transfers, cancel)
    before, after = (describe_counts(each.inventory) for each in (run, resumed.run))
    return ScaleResult(before, after, resumed)


def hosts_for(run: Run, patterns: Sequence[str], load: Callable[[], Inventory]) -> list[Host]:
    """Return the hosts that `--on` names: those of the run, or else of hosts.toml, which `load`
    reads. Raises PlanError as `select_hosts` does."""
    hosts = {host.name: host for host in run.inventory.hosts}
    if patterns:
        with suppress(PlanError):
            return [hosts[name] for name in select_hosts(hosts, patterns)]
        hosts = _idle_hosts(load()) | hosts
        return [hosts[name] for name in select_hosts(hosts, patterns)]
    return []


def _idle_hosts(inventory: Inventory) -> dict[str, Host]:
    """Return the hosts of hosts.toml as the run would use them: with an address, and no task."""
    return {
        host.name: without_tasks(host).copy_with({"address": address(host, inventory)})
        for host in inventory.hosts
    }


def _refuse_no_change(run: Run, changes: Changes) -> None:
    jobs = [placement.task.job for placement in run.plan.placements]
    if not changes.on and all(jobs.count(JOBS[key]) == n for key, n in changes.counts.items()):
        counts = describe_counts(run.inventory)
        raise RunError(f"run {run.id} already has {counts}: there is nothing to scale")


def _refuse_ended(run: Run, changes: Changes, cancel: threading.Event | None) -> None:
    with Fleet(run.inventory, version=run.agent, record=run, cancel=cancel) as fleet:
        found = status(fleet, run)
    states = [task.report.state for task in found.tasks if task.report]
    if states and not any(state in ACTIVE for state in states):
        raise RunError(
            f"run {run.id} has ended: there is nothing to scale",
            f"to continue it: {resume_command(run, changes)}",
        )
