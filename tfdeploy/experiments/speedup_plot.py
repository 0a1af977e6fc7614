"""The picture of a sweep: what was measured, and beside it what is predicted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfdeploy.experiments import plots
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.experiments.speed import model
from tfdeploy.experiments.speed.model import Prediction
from tfdeploy.experiments.speed.results import Cell
from tfdeploy.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tfdeploy.experiments.speed.results import CellResults, Sweep

PICTURE = "speedup.svg"
PREDICTED = "predicted, not measured"


def draw(sweep: Sweep, file: Path) -> None:
    """Plot the speed-up over workers: one line for each number of ps, and the ideal line. Draw
    nothing if nothing was measured."""
    if sweep.base:
        plots.draw(file, panels(sweep), OwnFolder.named(file.parent))


def panels(sweep: Sweep) -> list[Panel]:
    """Return a panel of what was measured, with ranges, and one of the prediction if there is
    one."""
    assert sweep.base
    workers = sorted({results.cell.workers for results in sweep.measured})
    title = f"{sweep.terms['project']}: speed-up over {sweep.base.cell}"
    lines = list(_measured_lines(sweep))
    ideal = _ideal(sweep, workers)
    measured = Panel(title, "workers", "speed-up", lines, ideal, ticks=workers)
    prediction = model.predict(sweep, sweep.predict) if sweep.predict else ""
    if not isinstance(prediction, Prediction):
        return [measured]
    return [measured, _predicted_panel(sweep, prediction, lines)]


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


def _predicted_panel(sweep: Sweep, prediction: Prediction, measured: Sequence[Line]) -> Panel:
    """Both axes are logarithmic: a prediction goes far beyond what was measured."""
    lines = [Line(line.label, line.xs, line.ys, linestyle="none") for line in measured]
    for ps in sorted({cell.ps for cell in prediction.cells}):
        lines.append(_predicted_line(prediction, ps))
    workers = sorted({cell.workers for cell in prediction.cells})
    ideal = _ideal(sweep, workers)
    ticks = [count for count in workers if math.log2(count).is_integer()]
    return Panel(PREDICTED, "workers", "speed-up", lines, ideal, log="xy", ticks=ticks)


def _predicted_line(prediction: Prediction, ps: int) -> Line:
    speeds = {cell.workers: speed for cell, speed in prediction.cells.items() if cell.ps == ps}
    ys = [speed.speedup for speed in speeds.values()]
    ranges = [speed.speedup_range or (speed.speedup, speed.speedup) for speed in speeds.values()]
    label, like = f"{ps} ps, predicted", f"{ps} ps"
    return Line(label, list(speeds), ys, ranges=ranges, linestyle=":", like=like)


def _ideal(sweep: Sweep, workers: Sequence[int]) -> Line:
    assert sweep.base
    ps = sweep.base.cell.ps
    return Line("ideal", workers, [sweep.ideal(Cell(count, ps)) for count in workers])
