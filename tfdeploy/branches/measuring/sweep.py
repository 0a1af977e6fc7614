"""`tfdeploy sweep`: the same training with different numbers of ps and workers, in short runs.

The repeats are interleaved: first each cell once, then each cell again, so that a machine that
becomes slower or faster meanwhile does so for all cells alike.

runs/<run>/ has the record, the events and the logs of each run, as of any other run. Commands
without --run never choose a sweep's run. A run is deleted from the hosts, so that the runs of a
grid don't displace other runs there. A failed run stays on the hosts, where it can be inspected. If
the sweep is killed, `max_duration_s` ends the run that it leaves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring.grid import plan_cells, refuse_what_cannot_be_compared
from tfdeploy.branches.measuring.measure import measure
from tfdeploy.branches.measuring.speed.results import FAILED, MEASURED, Cell, Result
from tfdeploy.commands.plan import plan_all
from tfdeploy.commands.prune import remove_run
from tfdeploy.commands.push import push
from tfdeploy.commands.signals import delay_signals
from tfdeploy.commands.start import launch, plan_run
from tfdeploy.commands.stop import stop
from tfdeploy.config.inventory import Notify
from tfdeploy.errors import TaskError, TfdeployError, individual_errors
from tfdeploy.hosts.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.branches.measuring.grid import Grid
    from tfdeploy.commands.intent import Intent
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.run import Run


def sweep(inventory: Inventory, grid: Grid) -> Iterator[Result]:
    """Measure every repeat of every cell, and yield its result. A cell that failed, or ended before
    its time, is not repeated.

    Raises PlanError if any cell can't be planned, before anything runs; the errors of hosts that
    `push`, `start` and `stop` raise; and KeyboardInterrupt at Ctrl-C, after its run was stopped.
    """
    refuse_what_cannot_be_compared(inventory.training)
    whole = plan_all(inventory)
    intents, given_up = plan_cells(whole, grid), set[Cell]()
    with Fleet(whole.inventory) as fleet:
        for repeat in range(1, grid.repeats + 1):
            for cell, intent in intents.items():
                if cell not in given_up:
                    run = _plan(fleet, intent)
                    result = _measure_and_remove(fleet, run, cell, grid.seconds)
                    given_up |= {cell} if result.result != MEASURED else set()
                    yield replace(result, repeat=repeat)


def _plan(fleet: Fleet, intent: Intent) -> Run:
    """Push the release, which the hosts have after the first cell, and plan a run, the end of which
    nobody is notified of."""
    push(fleet, intent)
    planned = plan_run(fleet, intent)
    quiet = planned.inventory.copy_with({"notify": Notify()})
    return replace(planned, inventory=quiet, by_id_only=True)


def _measure_and_remove(fleet: Fleet, run: Run, cell: Cell, seconds: float) -> Result:
    """Return the result. At Ctrl-C stop the run, also one that has started but was not watched yet,
    delete it, and raise KeyboardInterrupt."""
    try:
        result = _measure(fleet, run, cell, seconds)
    except KeyboardInterrupt:
        with delay_signals():
            stop(fleet, run)
        _remove(fleet, run)
        raise
    if result.result != FAILED:
        _remove(fleet, run)
    return result


def _measure(fleet: Fleet, run: Run, cell: Cell, seconds: float) -> Result:
    """Start a run, and measure it. A failed task is a result; a failed host raises."""
    try:
        started = launch(fleet, run)
    except TfdeployError as error:
        if not all(isinstance(part, TaskError) for part in individual_errors(error)):
            raise
        return Result(cell, run.id, FAILED, str(error))
    return measure(fleet, started, cell, seconds)


def _remove(fleet: Fleet, run: Run) -> None:
    """Delete a run from its hosts. Its events and logs are on the controller."""
    remove_run(fleet, run.inventory.project, run.id, run.plan.hosts, "sweep")
