"""`tfdeploy sweep`: the same training with different numbers of ps and workers, in short runs.

The repeats are interleaved: first each cell once, then each cell again, so that a machine that
becomes slower or faster meanwhile does so for all cells alike.

sweep/sweep.json     the results (see record.py)
runs/<run>/          the record, the events and the logs of each run, as of any other run

Commands without --run never choose a sweep's run. A measured run is deleted from the hosts, so
that the runs of a grid don't displace other runs there. A failed run stays on the hosts, where it
can be inspected, until its cell is measured again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.commands.following.signals import delay_signals
from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.prune import remove_run
from tfdeploy.commands.push import push
from tfdeploy.commands.start import launch, plan_run
from tfdeploy.commands.stop import stop
from tfdeploy.config.inventory import Notify
from tfdeploy.errors import TaskError, TfdeployError, individual_errors
from tfdeploy.experiments.grid import plan_cells, refuse_shared_checkpoints, used_hosts
from tfdeploy.experiments.measure import measure
from tfdeploy.experiments.record import SweepRecord, lock_folder
from tfdeploy.experiments.speed.results import FAILED, MEASURED, RUNNING, Result, Sweep
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.trust.store import refuse_untrusted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfdeploy.commands.plan import Intent
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.experiments.grid import Grid
    from tfdeploy.experiments.speed.results import Cell
    from tfdeploy.run import Run

FOLDER = "sweep"


@dataclass(frozen=True)
class SweepWatcher:
    """`on_start` is called with a RUNNING result before its run starts, `on_result` with each
    result."""

    on_start: Callable[[Result], None] = lambda result: None
    on_result: Callable[[Result], None] = lambda result: None


def sweep(
    inventory: Inventory,
    grid: Grid,
    folder: Path,
    watcher: SweepWatcher = SweepWatcher(),
    *,
    accept_new: bool = False,
) -> Sweep:
    """Measure every repeat of every cell of the grid that the record in `folder` lacks.

    Raises PlanError if any cell can't be planned, and RunError if the record has other terms, both
    before anything runs; the errors of hosts that `push`, `start` and `stop` raise; and
    KeyboardInterrupt at Ctrl-C, after its run was stopped. Finished measurements are kept.
    """
    refuse_shared_checkpoints(inventory.training.checkpoint_dir)
    whole = plan_all(inventory)
    intents = plan_cells(whole, grid)
    with lock_folder(folder):
        record = SweepRecord(folder, _empty_sweep(inventory, whole, grid))
        _stop_orphaned_runs(inventory, record)
        with Fleet(used_hosts(whole.inventory, intents), accept_new=accept_new) as fleet:
            runner = CellRunner(CellRuns(fleet, grid.seconds), record, watcher)
            for repeat in range(1, grid.repeats + 1):
                for cell, intent in intents.items():
                    runner.measure(cell, repeat, intent)
    return record.sweep


class CellRuns:
    """What is done to the run of a cell, on its hosts."""

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        self._fleet, self._seconds = fleet, seconds

    def plan(self, intent: Intent) -> Run:
        """Push the release, which the hosts have after the first cell, and plan a run, the end of
        which nobody is notified of."""
        push(self._fleet, intent)
        planned = plan_run(self._fleet, intent)
        quiet = planned.inventory.copy_with({"notify": Notify()})
        return replace(planned, inventory=quiet, of_sweep=True)

    def measure(self, cell: Cell, planned: Run) -> Result:
        """Start a run, and measure it. A failed task is a result; a failed host raises."""
        try:
            started = launch(self._fleet, planned)
        except TfdeployError as error:
            if not all(isinstance(part, TaskError) for part in individual_errors(error)):
                raise
            return Result(cell, planned.id, FAILED, str(error))
        return measure(self._fleet, started, cell, self._seconds)

    def stop(self, planned: Run) -> None:
        """Stop a run, also one that has started but was not watched yet."""
        stop(self._fleet, planned)

    def remove(self, intent: Intent, run_id: str) -> None:
        """Delete a run from its hosts. Its events and logs are on the controller."""
        remove_run(self._fleet, intent.inventory.project, run_id, intent.plan.hosts)


class CellRunner:
    """Measure cell after cell. Each is written to the record before it starts, and after it ends,
    so that the next sweep finds the run of a sweep that was killed.

    A cell that failed, or ended before its time, is not repeated by the same sweep.
    """

    def __init__(self, runs: CellRuns, record: SweepRecord, watcher: SweepWatcher) -> None:
        self._runs, self._record, self._watcher = runs, record, watcher
        self._given_up: set[Cell] = set()

    def measure(self, cell: Cell, repeat: int, intent: Intent) -> None:
        """Measure a cell, unless the record has this repeat of it."""
        previous = self._record.sweep.results.get((cell, repeat))
        if previous and previous.result == MEASURED:
            self._watcher.on_result(previous)
        elif cell not in self._given_up:
            self._measure(cell, repeat, intent, previous)

    def _measure(self, cell: Cell, repeat: int, intent: Intent, previous: Result | None) -> None:
        next_run = self._runs.plan(intent)
        going = Result(cell, next_run.id, repeat=repeat, hosts=tuple(next_run.plan.hosts))
        self._watcher.on_start(going)
        self._record.put(going)
        if previous:
            self._runs.remove(intent, previous.run)
        result = self._measure_or_forget(going, intent, next_run)
        self._record.put(result)
        self._watcher.on_result(result)
        if result.result != MEASURED:
            self._given_up.add(cell)
        if result.result != FAILED:
            self._runs.remove(intent, result.run)

    def _measure_or_forget(self, going: Result, intent: Intent, next_run: Run) -> Result:
        """Return the result. At Ctrl-C stop the run, delete it, and raise KeyboardInterrupt."""
        try:
            result = self._runs.measure(going.cell, next_run)
        except KeyboardInterrupt:
            with delay_signals():
                self._runs.stop(next_run)
            self._record.delete(going)
            self._runs.remove(intent, next_run.id)
            raise
        return replace(result, repeat=going.repeat, hosts=going.hosts)


def _empty_sweep(inventory: Inventory, whole: Intent, grid: Grid) -> Sweep:
    """Return the sweep without results. Results with other terms must not be mixed with its own.
    They have the keys that hosts.toml has: a record stays valid when tfdeploy gains a key."""
    hosts = {h.name: h.to_toml() for h in inventory.hosts}
    table = inventory.to_values({"file", "hosts", "notify"})  # cells notify nobody
    terms = {
        "project": inventory.project,
        "release": whole.release.id,
        "data": whole.data_ids,
        **({"environments": whole.environment_ids} if whole.environments else {}),
        "seconds": grid.seconds,
        inventory.file.name: {**table, "hosts": hosts},
    }
    chief = any(host.chief for host in inventory.hosts)
    return Sweep({}, terms, grid.synchronous, chief)


def _stop_orphaned_runs(inventory: Inventory, record: SweepRecord) -> None:
    """Stop and delete the run that a killed sweep left. A run without a record never started."""
    for result in [each for each in record.sweep.results.values() if each.result == RUNNING]:
        if (inventory.file.parent / runs.FOLDER / result.run / "run.json").exists():
            orphan = runs.load(inventory.file, result.run)
            refuse_untrusted(orphan.inventory, f"the record of run {orphan.id}", orphan.flags)
            with Fleet(orphan.inventory, version=orphan.agent) as fleet:
                stop(fleet, orphan)
                remove_run(fleet, orphan.inventory.project, orphan.id, orphan.plan.hosts)
        record.delete(result)
