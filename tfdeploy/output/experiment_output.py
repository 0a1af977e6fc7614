"""What experiments found: the tables of `sweep` and `compare`."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from tfdeploy.experiments import report
from tfdeploy.formatting.humanize import escape_line, format_count, format_job_counts
from tfdeploy.output.terminal import Terminal, new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfdeploy.experiments.compare import Comparison, RunSeries
    from tfdeploy.experiments.speedup import Cell, Result, Sweep


class ExperimentOutput(Terminal):
    @contextmanager
    def sweep_progress(self) -> Iterator[Callable[[Cell, str], None]]:
        """Yield a function that takes the cell and the run that are measured now. It shows them on
        a terminal, until the context ends."""
        if not self._out.is_terminal:
            yield lambda cell, run: None
            return
        with self._out.status("pushing the release") as status:
            yield lambda cell, run: status.update(escape(f"{cell}: run {run}"))

    def print_cell(self, sweep: Sweep, result: Result) -> None:
        self.print_text(report.line(sweep, result))

    def print_sweep(self, sweep: Sweep, picture: Path) -> None:
        self.print_text("")
        table = new_table(*report.columns(sweep))
        for result in sweep:
            table.add_row(*(escape(escape_line(cell)) for cell in report.row(sweep, result)))
        self._print_table(table)
        for remark in report.remarks(sweep):
            self.print_text(remark)
        if sweep.base:
            self.print_text(f"picture: {picture}")

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
