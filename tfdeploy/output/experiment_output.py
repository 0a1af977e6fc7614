"""What was measured: the tables of `sweep` and `compare`, and what TensorBoard shows."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_duration,
    format_job_counts,
    format_size,
    shorten_names,
)
from tfdeploy.output.stream import Table
from tfdeploy.output.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tfdeploy.agent.protocol.events import UnreadableEvents
    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.commands.following.tensorboard.fetching import EventFetcher
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments.comparing.comparison import Comparison, RunSeries, Spread
    from tfdeploy.experiments.grid import Grid
    from tfdeploy.experiments.speed.model import Prediction
    from tfdeploy.experiments.speed.results import Cell, Result, Sweep
    from tfdeploy.experiments.training.metrics import Reached

MAX_TEXT = 200  # characters of what a host reports


class ExperimentOutput(Terminal):
    @contextmanager
    def sweep_progress(self) -> Iterator[Callable[[Result], None]]:
        """Yield a function that takes what is measured now. It shows it on a terminal, until the
        context ends."""
        if not self._out.is_terminal:
            yield lambda result: None
            return
        with self._out.status("pushing the release") as show:
            yield lambda result: show(f"{result.cell}, repeat {result.repeat}: run {result.run}")

    @contextmanager
    def report_progress(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that takes the run whose report is written now, and shows it on a
        terminal until the context ends."""
        if not self._out.is_terminal:
            yield lambda run: None
            return
        with self._out.status("reading the runs") as show:
            yield lambda run: show(f"report of run {run}")

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
        from tfdeploy.experiments.speed import model, report

        self.print_text("")
        self._print_rows(report.columns(sweep), [report.row(sweep, each) for each in sweep])
        self._print_paragraph(report.remarks(sweep))
        if not sweep.base:
            return
        self._print_rows(report.LOAD_COLUMNS, map(report.load_row, sweep.measured), "\n")
        self._print_paragraph(report.LOAD_EXPLANATION)
        if sweep.predict:
            self._print_prediction(model.predict(sweep, sweep.predict), sweep.base.cell)
        self.print_text(f"picture: {picture}")

    def _print_prediction(self, prediction: Prediction | str, base: Cell) -> None:
        from tfdeploy.experiments.speed import report

        if isinstance(prediction, str):
            self.print_text(f"\nno prediction: {prediction}")
            return
        self.print_text(f"\npredicted, not measured: the speed-up over {base}")
        columns = report.predicted_columns(prediction)
        self._print_rows(columns, report.predicted_rows(prediction))
        self._print_paragraph(report.prediction_remarks(prediction.model))

    def _print_rows(
        self, columns: Iterable[str], rows: Iterable[Iterable[str]], before: str = ""
    ) -> None:
        table = Table(*columns)
        for row in rows:
            table.add_row(*map(escape_line, row))
        self._out.print(before, end="")
        self._out.print_table(table)

    def _print_paragraph(self, lines: Iterable[str]) -> None:
        for each in lines:
            self.print_text(each)

    def print_comparison(self, comparison: Comparison, picture: Path) -> None:
        """Print a row for each run, with those of its words that differ; STEPS and SECONDS are
        those of its last point. If there are repeated runs, print a row for each line of the
        picture, too; and then what all runs reached in all of their metrics."""
        line = ("LINE",) if comparison.has_repeats else ()
        words = comparison.different_words
        labels = ("RUN", *(("WORDS",) if any(words) else ()), *line)
        columns = (*labels, "TASKS", "POINTS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST")
        table = Table(*columns, *_result_columns(comparison))
        lines = [group.label for group in comparison.groups for _ in group.runs]
        for run, own, of_line in zip(comparison.runs, words, lines, strict=True):
            names = [run.label, *([own or "-"] if any(words) else []), *([of_line] if line else [])]
            table.add_row(*map(escape_line, names), *_comparison_row(comparison, run))
        self._out.print_table(table)
        if comparison.has_repeats:
            self._print_spreads(comparison)
        self._print_metrics(comparison)
        steps = format_count(comparison.smooth, "step")
        mean = f"running mean over {steps}" if comparison.smooth > 1 else "not smoothed"
        self.print_text(f"\n{comparison.tag}: {mean} (--smooth)\npicture: {picture}")

    def _print_metrics(self, comparison: Comparison) -> None:
        """Print what the training and its validation reached, if that says more than the table."""
        metrics = comparison.shared_metrics
        has_validation = any(m.validation for found in metrics.values() for m in found)
        if len(metrics) < 2 and not has_validation:
            return
        validation = ("VALIDATION LAST", "VALIDATION BEST") if has_validation else ()
        table = Table("METRIC", "RUN", "LAST", "BEST", *validation)
        for name, found in metrics.items():
            for run, metric in zip(comparison.runs, found, strict=True):
                reached = [metric.training, *([metric.validation] if has_validation else [])]
                texts = [text for each in reached for text in _reached_texts(each)]
                table.add_row(escape_line(name), escape_line(run.label), *texts)
        self.print_text("")
        self._out.print_table(table)

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

    def print_events_unreadable(self, host: str, found: UnreadableEvents) -> None:
        place = f"{found.task} on {host}: {found.path:.{MAX_TEXT}} from byte {found.begin} on"
        text = escape_line(f"{place} is not shown: it {found.error:.{MAX_TEXT}}")
        self._print_yellow(text)

    def _print_spreads(self, comparison: Comparison) -> None:
        """Print the medians of each line of the picture, with the lowest and the highest value."""
        from statistics import median

        from tfdeploy.experiments.comparing.comparison import spread

        table = Table("LINE", "RUNS", "POINTS", "LAST", *_result_columns(comparison))
        for group in comparison.groups:
            last = spread(group, lambda run: run.smoothed[-1])
            best = spread(group, comparison.best)
            reached = comparison.reached(group)
            steps = f", step {median(step for step, _ in reached):g}" if reached else ""
            of_all = f"{len(reached)} of {len(group.runs)}{steps}"
            table.add_row(
                *(escape_line(group.label), str(len(group.runs)), str(group.points)),
                *(_spread_text(last), _spread_text(best)),
                *([] if comparison.target is None else [of_all]),
            )
        self.print_text("\nmedian (lowest to highest run):")
        self._out.print_table(table)


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
    best = "HIGHEST" if comparison.rises else "LOWEST"
    return (best, *(() if comparison.target is None else (f"REACHED {comparison.target:g}",)))


def _comparison_row(comparison: Comparison, run: RunSeries) -> list[str]:
    values = (run.smoothed[0], run.smoothed[-1], comparison.best(run))
    return [
        *(format_job_counts(run.tasks) or "-", str(len(run.series)), str(run.series[-1].step)),
        *(_tenths(run.seconds[-1]), _tenths(run.steps_per_s)),
        *(f"{value:.4g}" for value in values),
        *([] if comparison.target is None else [_point_text(comparison.target_point(run))]),
    ]


def _reached_texts(reached: Reached | None) -> tuple[str, str]:
    return (f"{reached.last:.4g}", f"{reached.best:.4g}") if reached else ("-", "-")


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
