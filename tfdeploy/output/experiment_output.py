"""What was measured: the tables of `sweep`, `compare` and `trials`, and what TensorBoard shows."""

from __future__ import annotations

import math
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_duration,
    format_job_counts,
    format_size,
    shorten_names,
)
from tfdeploy.output.status_table import STATE_STYLES
from tfdeploy.output.stream import table_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console as RichConsole

    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.commands.following.tensorboard.fetching import EventFetcher
    from tfdeploy.commands.trials import TrialsResult
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments.compare import (
        ComparedRun,
        Comparison,
        TargetPoint,
    )
    from tfdeploy.experiments.grid import Grid
    from tfdeploy.experiments.speed.results import Sweep
    from tfdeploy.output.console import Console
    from tfdeploy.output.stream import Cell


MAX_LIVE_TRIALS = 20


def print_grid(console: Console, grid: Grid) -> None:
    """Print how much will be measured."""
    cells, runs = len(grid.cells), len(grid.cells) * grid.repeats
    what = f"{format_count(cells, 'cell')}, {format_count(grid.repeats, 'time')} each"
    console.print_text(f"{what}: at least {format_duration(runs * grid.seconds)}")


def print_sweep(console: Console, sweep: Sweep) -> None:
    from tfdeploy.experiments.speed import report

    if not sweep.results:
        return
    console.print_text("")
    rows = [report.row(sweep, each) for each in sweep]
    console.out.print_table(report.COLUMNS, rows)
    console.print_text(*report.remarks(sweep))


def print_trials(console: Console, result: TrialsResult) -> None:
    """Print a row for each trial, the best one first."""
    from tfdeploy.experiments import trial_table

    console.out.print_table(trial_table.columns(result), _trial_rows(result))
    console.print_text("", trial_table.summary(result))


def trials_progress(
    console: Console,
) -> AbstractContextManager[Callable[[TrialsResult], None] | None]:
    """Return a context that shows on a terminal how the trials go on: a function that takes it,
    or None elsewhere."""
    is_live = console.out.is_terminal and not console.is_quiet
    return _live_trials(console.out.rich) if is_live else nullcontext()


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a row for each run, with those of its words that differ; STEPS and SECONDS are
    those of its last point. Then print what all runs reached in all of their metrics."""
    words = ("WORDS",) if any(comparison.different_words) else ()
    reached = () if comparison.target is None else (_reached_column(comparison),)
    columns = ("TASKS", "POINTS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST")
    rows = [
        {"WORDS": own or "-", **_comparison_row(comparison, run)}
        for run, own in zip(comparison.runs, comparison.different_words, strict=True)
    ]
    shown = ("RUN", *words, *columns, comparison.best_is.upper(), *reached)
    console.out.print_table(shown, rows)
    _print_metrics(console, comparison)
    steps = format_count(comparison.smooth_steps, "step")
    mean = f"running mean over {steps}" if comparison.smooth_steps > 1 else "not smoothed"
    if comparison.differs_in:
        console.print_text("", f"the runs differ in {', '.join(comparison.differs_in)}")
    console.print_text("", f"{comparison.tag}: {mean} (--smooth)")


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


def print_starting_board(console: Console, board: EventBoard) -> None:
    runs = shorten_names(list(board.labels.values()))
    count = format_count(len(board.labels), "run")
    console.print_text(f"fetching the events of {count}, and starting TensorBoard: {runs}")


def print_board(console: Console, board: EventBoard, url: str) -> None:
    """Print the address, and of each run what there is to see."""
    for fetcher in board.fetchers:
        console.print_text(_shown_events(fetcher, board.labels[fetcher.run.id]))
    console.print_text(f"TensorBoard is at {url} for programs of this machine; Ctrl-C ends it")


def print_events_away(console: Console, error: TfdeployError) -> None:
    from tfdeploy.commands.following.tensorboard.fetching import shown_until

    console.print_warning(error, f"what was fetched before is shown{shown_until(error)}")


def _shown_events(fetcher: EventFetcher, label: str) -> str:
    from tfdeploy.commands.following.tensorboard.board import WRITERS, events_of

    sizes = events_of(fetcher.run)
    if not sizes:
        return f"run {label}: no events yet; {WRITERS}"
    return f"run {label}: {format_count(len(sizes), 'event file')}, {format_size(sum(sizes))}"


def _reached_column(comparison: Comparison) -> str:
    return f"REACHED {comparison.target or 0.0:g}"


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
        _reached_column(comparison): _point_text(run.reached),
    }


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _tenths(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1f}"


def _point_text(point: TargetPoint | None) -> str:
    if point is None:
        return "-"
    seconds = _tenths(point.seconds)
    return f"step {point.step}" if seconds == "-" else f"step {point.step}, {seconds} s"


def _trial_rows(result: TrialsResult) -> Iterator[dict[str, Cell]]:
    from tfdeploy.experiments import trial_table

    for row in trial_table.rows(result):
        yield {**row, "STATE": (row["STATE"], STATE_STYLES.get(row["STATE"], ""))}


@contextmanager
def _live_trials(console: RichConsole) -> Iterator[Callable[[TrialsResult], None]]:
    """Yield a function that replaces what is shown: the best trials, and how many there are."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from tfdeploy.experiments import trial_table

    def draw(result: TrialsResult) -> None:
        rows = [*_trial_rows(result)][:MAX_LIVE_TRIALS]
        table = table_text(trial_table.columns(result), rows)
        table.no_wrap, table.overflow = True, "ellipsis"
        view.update(Group(table, Text(escape_line(trial_table.summary(result)))), refresh=True)

    with Live(console=console, transient=True, auto_refresh=False) as view:
        yield draw
