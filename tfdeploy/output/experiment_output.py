"""What was measured: the tables of `sweep` and `compare`, and what TensorBoard shows."""

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
    format_size,
)
from tfdeploy.output.terminal import Terminal, new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tfdeploy.agent.protocol.events import UnreadableEvents
    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.commands.following.tensorboard.fetching import EventFetcher
    from tfdeploy.errors import TfdeployError
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

    def print_board(self, board: EventBoard, url: str) -> None:
        """Print the address, and of each run what there is to see and which hosts are away."""
        for fetcher in board.fetchers:
            self.print_text(_shown_events(fetcher, board.labels[fetcher.run.id]))
            for error in fetcher.errors.values():
                self.print_events_away(error)
        self.print_text(f"TensorBoard is at {url} for programs of this machine; Ctrl-C ends it")

    def print_events_away(self, error: TfdeployError) -> None:
        from tfdeploy.commands.following.tensorboard.fetching import will_be_retried

        again = " until it answers" if will_be_retried(error) else ""
        self._print_warning(error, f"what was fetched before is shown{again}")

    def print_events_unreadable(self, host: str, found: UnreadableEvents) -> None:
        place = f"{found.task} on {host}: {found.path} from byte {found.begin} on"
        text = escape_line(f"{place} is not shown: it {found.error}")
        self._err.print(f"[yellow]{escape(text)}[/]")


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
