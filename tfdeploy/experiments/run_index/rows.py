"""What the page says of each run: a row with its course, its losses and its report."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.experiments.comparing.comparison import LOSS
from tfdeploy.experiments.comparing.smoothing import smooth_series, window_of
from tfdeploy.experiments.run_report.redact import Redactor, show_words
from tfdeploy.experiments.run_report.summary import format_time
from tfdeploy.experiments.scalars import step_times
from tfdeploy.experiments.training import metrics
from tfdeploy.formatting.humanize import escape_line, format_job_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.training.course import Course
    from tfdeploy.experiments.training.metrics import Metric

WIDTH, HEIGHT, MARGIN = 100, 24, 2  # of a sparkline, in its own units
SPARKLINE_POINTS = 60
MINUTES = len("2026-11-22 23:57")


@dataclass(frozen=True)
class Sparkline:
    """The running mean of the loss: the points of an SVG polyline, and the same in words."""

    points: str = ""
    description: str = ""


@dataclass(frozen=True)
class RunRow:
    """`report` is a link; "" for none. `notes` are shown below the name. `step` is None if
    unknown. `metrics` are by name; that of the loss is LOSS, however the run calls it."""

    course: Course
    report: str
    notes: tuple[str, ...]
    step: int | None
    metrics: Mapping[str, Metric]
    sparkline: Sparkline
    tasks: str
    hosts: tuple[str, ...]
    words: str

    @property
    def label(self) -> str:
        return self.course.label

    @property
    def started(self) -> str:
        return format_time(self.course.started_s).removesuffix(" UTC")[:MINUTES]


def make_row(course: Course, report: str, problem: str) -> RunRow:
    """Return the row. `problem` says why there is no report; "" if there is one."""
    run = course.run
    steps = step_times(course.scalars) or course.log_losses.series
    is_epoch = not course.scalars and course.log_losses.unit == "epoch"
    words = Redactor(run.inventory, os.environ)(" ".join(show_words(run.words)))
    return RunRow(
        course=course,
        report=report,
        notes=tuple(filter(None, (
            run.id if run.name else "", "of a sweep" if run.of_sweep else "", problem,
        ))),
        step=steps[-1].step if steps and not is_epoch else None,
        metrics=_by_name(metrics.of_run(course)),
        sparkline=draw_sparkline(_loss_series(course)),
        tasks=format_job_counts(Counter(each.task.job for each in run.plan.placements)),
        hosts=tuple(escape_line(host) for host in run.plan.hosts),
        words=escape_line(words),
    )  # fmt: skip


def columns(rows: Sequence[RunRow]) -> tuple[tuple[str, bool], ...]:
    """Return the metrics that the page has columns for, each with whether any run has validated it:
    the loss, and the one that most other runs have."""
    counts = Counter(name for row in rows for name in row.metrics if name != LOSS)
    names = [LOSS, *(name for name, _ in counts.most_common(1))]
    return tuple(
        (name, any(m.validation for m in _metrics_of(rows, name)))
        for name in names
        if _metrics_of(rows, name) or name == LOSS
    )


def _metrics_of(rows: Sequence[RunRow], name: str) -> list[Metric]:
    return [row.metrics[name] for row in rows if name in row.metrics]


def _by_name(found: Sequence[Metric]) -> dict[str, Metric]:
    """Return the metrics by what people call them: `accuracy` for Keras's `epoch_accuracy`."""
    named = {escape_line(metric.name.removeprefix("epoch_")): metric for metric in reversed(found)}
    losses = [metric for metric in found if LOSS in metric.name.lower()]
    return {**({LOSS: losses[0]} if losses else {}), **named}


def _loss_series(course: Course) -> Series:
    """Return the loss of the training; without scalars the losses of the chief's log."""
    name = metrics.main_loss(list(course.scalars))
    return course.scalars[name] if name else course.log_losses.series


def draw_sparkline(series: Series) -> Sparkline:
    smoothed = smooth_series(series, window_of(series)) if series else ()
    finite = [value for value in smoothed if math.isfinite(value)]
    if not finite:
        return Sparkline()
    return Sparkline(_points(smoothed), f"loss from {finite[0]:.4g} to {finite[-1]:.4g}")


def _points(values: Sequence[float]) -> str:
    """Return the points of a line over the number of values; positive values are drawn by their
    logarithms, so that the end of a training can be seen."""
    shown = values[:: math.ceil(len(values) / SPARKLINE_POINTS)]
    finite = [value for value in shown if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    scale = math.log if min(finite) > 0 else float
    low, high = scale(min(finite)), scale(max(finite))
    span, room = (high - low) or 1.0, HEIGHT - 2 * MARGIN
    return " ".join(
        f"{WIDTH * number / (len(shown) - 1):.1f},"
        f"{HEIGHT - MARGIN - room * (scale(value) - low) / span:.1f}"
        for number, value in enumerate(shown)
        if math.isfinite(value)
    )
