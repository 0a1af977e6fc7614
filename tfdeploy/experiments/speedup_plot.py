"""The picture of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.experiments import plots
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.experiments.speed.results import Cell
from tfdeploy.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    lines = [_measured_line(sweep, of_ps) for of_ps in sweep.by_ps()]
    ideal = _ideal(sweep, workers)
    return Panel(title, "workers", "speed-up", lines, ideal, ticks=workers)


def _measured_line(sweep: Sweep, of_ps: Sequence[CellResults]) -> Line:
    spreads = [spread for results in of_ps if (spread := sweep.speedup(results))]
    return Line(
        f"{of_ps[0].cell.ps} ps",
        [results.cell.workers for results in of_ps],
        [spread.median for spread in spreads],
        ranges=[(spread.low, spread.high) for spread in spreads],
    )


def _ideal(sweep: Sweep, workers: Sequence[int]) -> Line:
    assert sweep.base
    ps = sweep.base.cell.ps
    return Line("ideal", workers, [sweep.ideal(Cell(count, ps)) for count in workers])
