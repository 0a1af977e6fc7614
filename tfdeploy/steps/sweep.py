"""`tfdeploy sweep`: the same training with other numbers of ps and workers, one short run each.

sweep/sweep.json     what was measured (see logbook.py), and
sweep/speedup.svg    the picture of it
runs/<run>/          the record, the events and the logs of each run, as of any other

Its runs are no command's newest, and those that were measured leave the hosts: a grid would push
the runs that were trained in earnest out of the way. One that failed stays there, to be looked at,
until its cell is measured again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from tfdeploy import curves, picture, plan, rescale, run
from tfdeploy.errors import PlanError, TaskError, TfdeployError, parts
from tfdeploy.fleet import Fleet
from tfdeploy.logbook import Logbook, alone
from tfdeploy.picture import Line, Panel
from tfdeploy.speedup import FAILED, GOING, Cell, Result, Sweep
from tfdeploy.steps.measure import measure
from tfdeploy.steps.plan import Intent, plan_all
from tfdeploy.steps.prune import remove
from tfdeploy.steps.push import push
from tfdeploy.steps.start import planned, start_planned, uninterrupted
from tfdeploy.steps.stop import stop

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tfdeploy.inventory import Inventory
    from tfdeploy.run import Run

FOLDER, PICTURE = "sweep", "speedup.svg"
MARGIN_S = 60.0  # for what a run does beside its training: its hosts are asked, it saves at its end


@dataclass(frozen=True)
class Grid:
    """The cells to measure, and how: each for so many seconds, its steps read off its events or by
    a `pattern` off its chief's log, and counted as Sweep says."""

    cells: tuple[Cell, ...]
    seconds: float = 60.0
    pattern: str | None = None
    examples_per_step: int | None = None
    synchronous: bool = False


@dataclass(frozen=True)
class Watcher:
    """Whom to tell how a sweep goes: which run a cell is about to begin, and what it came to."""

    on_begin: Callable[[Cell, str], None] = lambda cell, run: None
    on_result: Callable[[Sweep, Result], None] = lambda sweep, result: None


def cells(ps: str, workers: str) -> tuple[Cell, ...]:
    """Each number of ps with each number of workers, the smallest first. Raises PlanError."""
    pairs = product(_numbers("--workers", workers, 1), _numbers("--ps", ps, 0))
    return tuple(sorted(Cell(*pair) for pair in pairs))


def _numbers(flag: str, text: str, least: int) -> set[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and least <= int(word) <= 1024 for word in words):
        raise PlanError(
            f'{flag}: found "{text}", expected whole numbers from {least} to 1024',
            f"say them with commas between them, as {flag} 1,2,4",
        )
    return {int(word) for word in words}


def usual_ps(asked: Inventory) -> str:
    """What --ps is if nothing else is said."""
    return "1" if any(host.ps for host in asked.hosts) else "0"


def sweep(
    asked: Inventory,
    grid: Grid,
    folder: Path,
    watcher: Watcher = Watcher(),
    *,
    accept_new: bool = False,
) -> Sweep:
    """Measure every cell of the grid that the folder's record lacks.

    Raises PlanError where any cell can't be planned, and RunError where the record is of something
    else, before anything runs; what `push`, `start` and `stop` raise of hosts; and at Ctrl-C
    KeyboardInterrupt, when nothing of its run is left. What was measured by then is kept.
    """
    pattern = curves.log_pattern(grid.pattern) if grid.pattern else None
    _refuse_one_for_all(asked.training.checkpoint_dir)
    whole = plan_all(asked)
    intents = _planned(whole, grid)
    with alone(folder):
        book = Logbook(folder, _asked(asked, whole, grid))
        _end_what_was_left(asked, book)
        with Fleet(_used(whole.inventory, intents), accept_new=accept_new) as fleet:
            sweeping = _Sweeping(fleet, book, watcher, grid.seconds, pattern)
            for cell, intent in intents.items():
                sweeping.measure(cell, intent)
    return book.sweep


class _Sweeping:
    """Cell after cell, each written down before it begins and after it has ended."""

    def __init__(
        self,
        fleet: Fleet,
        book: Logbook,
        watcher: Watcher,
        seconds: float,
        pattern: re.Pattern[str] | None,
    ) -> None:
        self._fleet, self._book, self._watcher = fleet, book, watcher
        self._seconds, self._pattern = seconds, pattern

    def measure(self, cell: Cell, intent: Intent) -> None:
        """Unless it was measured before. A task that falls is a result, a host that does is not."""
        known = self._book.sweep.results.get(cell)
        if known and known.rate:
            self._watcher.on_result(self._book.sweep, known)
            return
        push(self._fleet, intent)  # of the first cell; then the release is there
        next_run = replace(planned(self._fleet, intent), of_sweep=True)
        self._watcher.on_begin(cell, next_run.id)
        self._book.put(Result(cell, next_run.id))
        if known:
            self._remove(intent, known.run)
        try:
            result = self._result(cell, next_run)
        except KeyboardInterrupt:
            with uninterrupted():
                stop(self._fleet, next_run)  # it may have begun, and not have been watched yet
            self._book.drop(cell)
            self._remove(intent, next_run.id)
            raise
        self._book.put(result)
        self._watcher.on_result(self._book.sweep, result)
        if result.rate:
            self._remove(intent, result.run)

    def _remove(self, intent: Intent, run_id: str) -> None:
        """What can be asked of it afterwards is at home."""
        remove(self._fleet, intent.inventory.project, run_id, intent.plan.hosts)

    def _result(self, cell: Cell, next_run: Run) -> Result:
        try:
            begun = start_planned(self._fleet, next_run, lambda host, report: None)
        except TfdeployError as error:
            if not all(isinstance(part, TaskError) for part in parts(error)):
                raise
            return Result(cell, next_run.id, FAILED, str(error))
        return measure(self._fleet, begun, cell, self._seconds, self._pattern)


def _refuse_one_for_all(checkpoint_dir: str) -> None:
    if checkpoint_dir.startswith("/"):
        raise PlanError(
            f"training.checkpoint_dir is {checkpoint_dir}: each run would go on from the last one",
            "say a relative one, so that each run has its own",
        )


def _planned(whole: Intent, grid: Grid) -> dict[Cell, Intent]:
    """What each cell is going to be, with the releases that the whole has. Raises one PlanError for
    all that can't be."""
    intents: dict[Cell, Intent] = {}
    wrong: dict[str, str] = {}
    for cell in grid.cells:
        try:
            intents[cell] = _intent(whole, cell, grid.seconds)
        except PlanError as error:
            wrong[f"{cell}: {error.message}"] = error.hint
    if wrong:
        raise PlanError("\n".join(wrong), "\n  ".join(dict.fromkeys(wrong.values())))
    return intents


def _intent(whole: Intent, cell: Cell, seconds: float) -> Intent:
    """Its first sign of training may take `seconds`, too: see measure.py."""
    limit_s = whole.inventory.training.ready_timeout_s + 2 * seconds + MARGIN_S
    inventory = rescale.to(whole.inventory, whole.plan, cell.ps, cell.workers, limit_s)
    data = {place: whole.data[place] for place in inventory.data}
    intent = Intent(inventory, plan.remake(inventory), whole.release, data)
    intent.launches()  # so that a wrong {field} is found now
    return intent


def _asked(asked: Inventory, whole: Intent, grid: Grid) -> Sweep:
    """The sweep with no result yet. Its terms are what results must have in common."""
    hosts = {h.name: h.model_dump(mode="json", exclude={"name"}) for h in asked.hosts}
    table = asked.model_dump(mode="json", exclude={"file", "hosts"})
    terms = {
        "project": asked.project,
        "release": whole.release.id,
        "data": whole.data_ids,
        "seconds": grid.seconds,
        "pattern": grid.pattern,
        asked.file.name: {**table, "hosts": hosts},
    }
    chief = any(host.chief for host in asked.hosts)
    return Sweep({}, terms, grid.examples_per_step, grid.synchronous, chief)


def _end_what_was_left(asked: Inventory, book: Logbook) -> None:
    """A sweep that was killed left its run going. One whose record is gone never began."""
    for left in [each for each in book.sweep if each.result == GOING]:
        if (asked.file.parent / run.FOLDER / left.run / "run.json").exists():
            known = run.load(asked.file, left.run)
            with Fleet(known.inventory, version=known.agent) as fleet:
                stop(fleet, known)
                remove(fleet, known.inventory.project, known.id, known.plan.hosts)
        book.drop(left.cell)


def _used(inventory: Inventory, intents: Mapping[Cell, Intent]) -> Inventory:
    """With those hosts alone that any cell needs."""
    names = {host for intent in intents.values() for host in intent.plan.hosts}
    hosts = tuple(host for host in inventory.hosts if host.name in names)
    return inventory.model_copy(update={"hosts": hosts})


def draw(found: Sweep, file: Path) -> None:
    """Speed-up against workers, one line a ps count, and the ideal one."""
    measured = [each for each in found if each.rate]
    if not measured or not found.base:
        return
    lines = []
    for ps in sorted({each.cell.ps for each in measured}):
        mine = [each for each in measured if each.cell.ps == ps]
        speedups = [found.speedup(each) or 0.0 for each in mine]
        lines.append(Line(f"{ps} ps", [each.cell.workers for each in mine], speedups))
    workers = sorted({each.cell.workers for each in measured})
    ideal = Line("ideal", workers, [found.ideal(count) for count in workers])
    title = f"{found.terms['project']}: times as fast as {found.base.cell}"
    picture.draw(file, [Panel(title, "workers", "speed-up", lines, ideal, ticks=workers)])
