"""What was measured: the tables of `sweep`, `compare` and `trials`, and what TensorBoard shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    format_count,
    format_duration,
    format_job_counts,
)

if TYPE_CHECKING:
    from tfdeploy.branches.measuring.compare import ComparedRun, Comparison
    from tfdeploy.branches.measuring.grid import Grid
    from tfdeploy.branches.measuring.speed.results import Sweep
    from tfdeploy.output.console import Console


def print_grid(console: Console, grid: Grid) -> None:
    """Print how much will be measured."""
    cells, runs = len(grid.cells), len(grid.cells) * grid.repeats
    what = f"{format_count(cells, 'cell')}, {format_count(grid.repeats, 'time')} each"
    console.print_text(f"{what}: at least {format_duration(runs * grid.seconds)}")


def print_sweep(console: Console, sweep: Sweep) -> None:
    from tfdeploy.branches.measuring.speed import report

    if not sweep.results:
        return
    console.print_text("")
    rows = [report.row(sweep, each) for each in sweep]
    console.out.print_table(report.COLUMNS, rows)
    console.print_text(*report.remarks(sweep))


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a row for each run, with those of its words that differ; STEPS and SECONDS are
    those of its last point. Then print what all runs reached in all of their metrics."""
    words = ("WORDS",) if any(comparison.different_words) else ()
    columns = ("TASKS", "POINTS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST")
    rows = [
        {"WORDS": own or "-", **_comparison_row(comparison, run)}
        for run, own in zip(comparison.runs, comparison.different_words, strict=True)
    ]
    shown = ("RUN", *words, *columns, comparison.best_is.upper())
    console.out.print_table(shown, rows)
    _print_metrics(console, comparison)
    best = comparison.best_is.upper()
    console.print_text("", f"FIRST, LAST and {best} are values of {comparison.tag}")
    if comparison.differs_in:
        console.print_text(f"the runs differ in {', '.join(comparison.differs_in)}")


def _print_metrics(console: Console, comparison: Comparison) -> None:
    """Print what the training and its validation reached, if that says more than the table."""
    metrics = comparison.shared_metrics
    values = [m.validation_last for found in metrics.values() for m in found]
    has_validation = any(value is not None for value in values)
    if len(metrics) < 2 and not has_validation:
        return
    validation = ("VALIDATION LAST", "VALIDATION BEST") if has_validation else ()
    columns = ("METRIC", "RUN", "LAST", "BEST", *validation)
    rows = [
        {
            "METRIC": name,
            "RUN": run.label,
            "LAST": _figure(metric.last),
            "BEST": _figure(metric.best),
            "VALIDATION LAST": _figure(metric.validation_last),
            "VALIDATION BEST": _figure(metric.validation_best),
        }
        for name, found in metrics.items()
        for run, metric in zip(comparison.runs, found, strict=True)
    ]
    console.print_text("")
    console.out.print_table(columns, rows)


def _comparison_row(comparison: Comparison, run: ComparedRun) -> dict[str, str]:
    return {
        "RUN": run.label,
        "TASKS": format_job_counts(run.tasks) or "-",
        "POINTS": str(run.points),
        "STEPS": str(run.steps),
        "SECONDS": _tenths(run.seconds),
        "STEPS/S": _tenths(run.steps_per_s),
        "FIRST": _figure(run.first),
        "LAST": _figure(run.last),
        comparison.best_is.upper(): _figure(run.best),
    }


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _tenths(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1f}"
