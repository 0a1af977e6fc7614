"""What was measured: the tables of `sweep` and `compare`, and what TensorBoard shows."""

from __future__ import annotations

import math
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    format_count,
    format_duration,
    format_job_counts,
    format_size,
    shorten_names,
)
from tfdeploy.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.commands.following.tensorboard.fetching import EventFetcher
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments.comparing.comparison import Comparison, RunSeries
    from tfdeploy.experiments.grid import Grid
    from tfdeploy.experiments.repeats import Spread
    from tfdeploy.experiments.speed.results import Result, Sweep
    from tfdeploy.experiments.training.metrics import Reached


class ExperimentOutput(Terminal):
    @contextmanager
    def sweep_progress(self) -> Iterator[Callable[[Result], None]]:
        """Yield a function that takes what is measured now, and shows it as `_progress` does."""
        with self._progress("pushing the release") as show:
            yield lambda result: show(f"{result.cell}, repeat {result.repeat}: run {result.run}")

    @contextmanager
    def report_progress(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that takes the run whose report is written now, and shows it as
        `_progress` does."""
        with self._progress("reading the runs") as show:
            yield lambda run: show(f"report of run {run}")

    def _progress(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context that shows a text on a terminal, and a function that replaces it."""
        if self._out.is_terminal:
            return self._out.status(text)
        return nullcontext(lambda text: None)

    def print_grid(self, grid: Grid, folder: Path) -> None:
        """Print how much will be measured."""
        cells, runs = len(grid.cells), len(grid.cells) * grid.repeats
        what = f"{format_count(cells, 'cell')}, {format_count(grid.repeats, 'time')} each"
        least = format_duration(runs * grid.seconds)
        self.print_step(f"{what}: at least {least}, less what is already in {folder}")

    def print_cell(self, result: Result) -> None:
        from tfdeploy.experiments.speed import report

        self.print_text(report.line(result))

    def print_sweep(self, sweep: Sweep, picture: Path) -> None:
        from tfdeploy.experiments.speed import report

        self.print_text("")
        rows = [report.row(sweep, each) for each in sweep]
        self._out.print_table(report.columns(sweep), rows)
        self.print_text(*report.remarks(sweep))
        if not sweep.base:
            return
        self.print_text("")
        self._out.print_table(report.LOAD_COLUMNS, map(report.load_row, sweep.measured))
        self.print_text(*report.LOAD_EXPLANATION)
        self.print_text(f"picture: {picture}")

    def print_comparison(self, comparison: Comparison, picture: Path) -> None:
        """Print a row for each run, with those of its words that differ; STEPS and SECONDS are
        those of its last point. If there are repeated runs, print a row for each line of the
        picture, too; and then what all runs reached in all of their metrics."""
        line = ("LINE",) if comparison.has_repeats else ()
        words = ("WORDS",) if any(comparison.different_words) else ()
        columns = ("TASKS", "POINTS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST")
        lines = [group.label for group in comparison.groups for _ in group.runs]
        runs = zip(comparison.runs, comparison.different_words, lines, strict=True)
        rows = [
            {"WORDS": own or "-", "LINE": of_line, **_comparison_row(comparison, run)}
            for run, own, of_line in runs
        ]
        shown = ("RUN", *words, *line, *columns, *_result_columns(comparison))
        self._out.print_table(shown, rows)
        if comparison.has_repeats:
            self._print_spreads(comparison)
        self._print_metrics(comparison)
        steps = format_count(comparison.smooth, "step")
        mean = f"running mean over {steps}" if comparison.smooth > 1 else "not smoothed"
        if comparison.differs_in:
            self.print_text("", f"the runs differ in {', '.join(comparison.differs_in)}")
        self.print_text("", f"{comparison.tag}: {mean} (--smooth)", f"picture: {picture}")

    def _print_metrics(self, comparison: Comparison) -> None:
        """Print what the training and its validation reached, if that says more than the table."""
        metrics = comparison.shared_metrics
        has_validation = any(m.validation for found in metrics.values() for m in found)
        if len(metrics) < 2 and not has_validation:
            return
        validation = ("VALIDATION LAST", "VALIDATION BEST") if has_validation else ()
        columns = ("METRIC", "RUN", "LAST", "BEST", *validation)
        rows = [
            {
                **{"METRIC": name, "RUN": run.label},
                **_reached_cells("", metric.training),
                **_reached_cells("VALIDATION ", metric.validation),
            }
            for name, found in metrics.items()
            for run, metric in zip(comparison.runs, found, strict=True)
        ]
        self.print_text("")
        self._out.print_table(columns, rows)

    def print_starting_board(self, board: EventBoard) -> None:
        runs = shorten_names(list(board.labels.values()))
        count = format_count(len(board.labels), "run")
        self.print_text(f"fetching the events of {count}, and starting TensorBoard: {runs}")

    def print_board(self, board: EventBoard, url: str) -> None:
        """Print the address, and of each run what there is to see and which hosts are away."""
        for fetcher in board.fetchers:
            self.print_text(_shown_events(fetcher, board.labels[fetcher.run.id]))
            for error in fetcher.errors.values():
                self.print_events_away(error)
        self.print_text(f"TensorBoard is at {url} for programs of this machine; Ctrl-C ends it")

    def print_events_away(self, error: TfdeployError) -> None:
        from tfdeploy.commands.following.tensorboard.fetching import shown_until

        self._print_warning(error, f"what was fetched before is shown{shown_until(error)}")

    def _print_spreads(self, comparison: Comparison) -> None:
        """Print the medians of each line of the picture, with the lowest and the highest value."""
        from statistics import median

        from tfdeploy.experiments.repeats import spread_of

        rows = []
        for group in comparison.groups:
            reached = comparison.reached(group)
            steps = f", step {median(step for step, _ in reached):g}" if reached else ""
            rows.append({
                "LINE": group.label,
                "RUNS": str(len(group.runs)),
                "POINTS": str(group.points),
                "LAST": _spread_text(spread_of(run.smoothed[-1] for run in group.runs)),
                _best_column(comparison): _spread_text(spread_of(map(comparison.best, group.runs))),
                _reached_column(comparison): f"{len(reached)} of {len(group.runs)}{steps}",
            })  # fmt: skip
        self.print_text("", "median (lowest to highest run):")
        columns = ("LINE", "RUNS", "POINTS", "LAST", *_result_columns(comparison))
        self._out.print_table(columns, rows)


def _shown_events(fetcher: EventFetcher, label: str) -> str:
    from tfdeploy.commands.following.tensorboard.board import WRITERS

    counts = fetcher.copies.counts()
    tasks = [
        f"{task} ({format_count(files, 'file')}, {format_size(size)})"
        for task, (files, size) in counts.items()
    ]
    shown = ", ".join(tasks) if tasks else f"no events yet; {WRITERS}"
    also = " (another command fetches them)" if fetcher.fetched_elsewhere else ""
    return f"run {label}: {shown}{also}"


def _result_columns(comparison: Comparison) -> tuple[str, ...]:
    reached = () if comparison.target is None else (_reached_column(comparison),)
    return (_best_column(comparison), *reached)


def _best_column(comparison: Comparison) -> str:
    return "HIGHEST" if comparison.rises else "LOWEST"


def _reached_column(comparison: Comparison) -> str:
    return f"REACHED {comparison.target or 0.0:g}"


def _comparison_row(comparison: Comparison, run: RunSeries) -> dict[str, str]:
    return {
        "RUN": run.label,
        "TASKS": format_job_counts(run.tasks) or "-",
        "POINTS": str(len(run.series)),
        "STEPS": str(run.series[-1].step),
        "SECONDS": _tenths(run.seconds[-1]),
        "STEPS/S": _tenths(run.steps_per_s),
        "FIRST": f"{run.smoothed[0]:.4g}",
        "LAST": f"{run.smoothed[-1]:.4g}",
        _best_column(comparison): f"{comparison.best(run):.4g}",
        _reached_column(comparison): _point_text(comparison.target_point(run)),
    }


def _reached_cells(prefix: str, reached: Reached | None) -> dict[str, str]:
    last, best = (f"{reached.last:.4g}", f"{reached.best:.4g}") if reached else ("-", "-")
    return {f"{prefix}LAST": last, f"{prefix}BEST": best}


def _spread_text(spread: Spread) -> str:
    if spread.low == spread.high:
        return f"{spread.median:.4g}"
    return f"{spread.median:.4g} ({spread.low:.4g} to {spread.high:.4g})"


def _tenths(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _point_text(point: tuple[int, float] | None) -> str:
    if point is None:
        return "-"
    step, seconds = point
    return f"step {step}" if math.isnan(seconds) else f"step {step}, {_tenths(seconds)} s"
