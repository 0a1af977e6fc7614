"""The picture of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.experiments import plots
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.experiments.speed.results import Cell
from tfdeploy.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tfdeploy.experiments.speed.results import CellResults, Sweep

PICTURE = "speedup.svg"


def draw(sweep: Sweep, file: Path) -> None:
    """Plot the speed-up over workers: one line for each number of ps, and the ideal line. Draw
    nothing if nothing was measured."""
    if sweep.base:
        plots.draw(file, [panel(sweep)], OwnFolder.named(file.parent))


def panel(sweep: Sweep) -> Panel:
    """Return what was measured, with ranges."""
    assert sweep.base
    workers = sorted({results.cell.workers for results in sweep.measured})
    title = f"{sweep.terms['project']}: speed-up over {sweep.base.cell}"
    lines = list(_measured_lines(sweep))
    ideal = _ideal(sweep, workers)
    return Panel(title, "workers", "speed-up", lines, ideal, ticks=workers)


def _measured_lines(sweep: Sweep) -> Iterable[Line]:
    for ps in sorted({results.cell.ps for results in sweep.measured}):
        of_ps = [results for results in sweep.measured if results.cell.ps == ps]
        yield _measured_line(sweep, ps, of_ps)


def _measured_line(sweep: Sweep, ps: int, of_ps: Sequence[CellResults]) -> Line:
    spreads = [spread for results in of_ps if (spread := sweep.speedup(results))]
    return Line(
        f"{ps} ps",
        [results.cell.workers for results in of_ps],
        [spread.median for spread in spreads],
        ranges=[(spread.low, spread.high) for spread in spreads],
    )


def _ideal(sweep: Sweep, workers: Sequence[int]) -> Line:
    assert sweep.base
    ps = sweep.base.cell.ps
    return Line("ideal", workers, [sweep.ideal(Cell(count, ps)) for count in workers])
