"""What experiments found: the tables of `sweep` and `compare`."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from tfdeploy.experiments.speed import model, report
from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_duration,
    format_job_counts,
)
from tfdeploy.output.terminal import Terminal, new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tfdeploy.experiments.compare import Comparison, RunSeries
    from tfdeploy.experiments.grid import Grid
    from tfdeploy.experiments.speed.model import Prediction
    from tfdeploy.experiments.speed.results import Cell, Result, Sweep


class ExperimentOutput(Terminal):
    @contextmanager
    def sweep_progress(self) -> Iterator[Callable[[Result], None]]:
        """Yield a function that takes what is measured now. It shows it on a terminal, until the
        context ends."""
        if not self._out.is_terminal:
            yield lambda result: None
            return
        with self._out.status("pushing the release") as status:
            yield lambda result: status.update(
                escape(f"{result.cell}, repeat {result.repeat}: run {result.run}")
            )

    def print_grid(self, grid: Grid, folder: Path) -> None:
        """Print how much will be measured."""
        cells, runs = len(grid.cells), len(grid.cells) * grid.repeats
        what = f"{format_count(cells, 'cell')}, {format_count(grid.repeats, 'time')} each"
        least = format_duration(runs * grid.seconds)
        self.print_step(f"{what}: at least {least}, less what is already in {folder}")

    def print_cell(self, result: Result) -> None:
        self.print_text(report.line(result))

    def print_sweep(self, sweep: Sweep, picture: Path) -> None:
        self.print_text("")
        self._print_rows(report.columns(sweep), [report.row(sweep, each) for each in sweep])
        self._print_lines(report.remarks(sweep))
        if not sweep.base:
            return
        self._print_rows(report.LOAD_COLUMNS, map(report.load_row, sweep.measured), "\n")
        self._print_lines(report.LOAD_EXPLANATION)
        if sweep.predict:
            self._print_prediction(model.predict(sweep, sweep.predict), sweep.base.cell)
        self.print_text(f"picture: {picture}")

    def _print_prediction(self, prediction: Prediction | str, base: Cell) -> None:
        if isinstance(prediction, str):
            self.print_text(f"\nno prediction: {prediction}")
            return
        self.print_text(f"\npredicted, not measured: the speed-up over {base}")
        columns = report.predicted_columns(prediction)
        self._print_rows(columns, report.predicted_rows(prediction))
        self._print_lines(report.prediction_remarks(prediction.model))

    def _print_rows(
        self, columns: Iterable[str], rows: Iterable[Iterable[str]], before: str = ""
    ) -> None:
        table = new_table(*columns)
        for row in rows:
            table.add_row(*(escape(escape_line(cell)) for cell in row))
        self._out.print(before, end="")
        self._print_table(table)

    def _print_lines(self, lines: Iterable[str]) -> None:
        for each in lines:
            self.print_text(each)

    def print_comparison(self, comparison: Comparison, picture: Path) -> None:
        """Print a row for each run; STEPS and SECONDS are those of its last point."""
        best = "HIGHEST" if comparison.rises else "LOWEST"
        target = comparison.target
        reached = () if target is None else (f"REACHED {target:g}",)
        columns = ("RUN", "TASKS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST", best)
        table = new_table(*columns, *reached)
        for run in comparison.runs:
            table.add_row(*_comparison_row(comparison, run))
        self._print_table(table)
        steps = format_count(comparison.smooth, "step")
        mean = f"running mean over {steps}" if comparison.smooth > 1 else "not smoothed"
        self.print_text(f"\n{comparison.tag}: {mean} (--smooth)\npicture: {picture}")


def _comparison_row(comparison: Comparison, run: RunSeries) -> list[str]:
    label = escape(escape_line(run.label))
    values = (run.smoothed[0], run.smoothed[-1], comparison.best(run))
    return [
        *(label, format_job_counts(run.tasks) or "-", str(run.series[-1].step)),
        *(_tenths(run.seconds[-1]), _tenths(run.steps_per_s)),
        *(f"{value:.4g}" for value in values),
        *([] if comparison.target is None else [_point_text(comparison.target_point(run))]),
    ]


def _tenths(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _point_text(point: tuple[int, float] | None) -> str:
    if point is None:
        return "-"
    step, seconds = point
    return f"step {step}" if math.isnan(seconds) else f"step {step}, {_tenths(seconds)} s"
