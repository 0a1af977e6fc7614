"""What the page says of each run: a row with its course, its losses and its report."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.experiments.comparing.compare import DEFAULT_WINDOWS, smooth_series
from tfdeploy.experiments.comparing.comparison import LOSS
from tfdeploy.experiments.run_report.redact import Redactor, show_words
from tfdeploy.experiments.run_report.summary import format_time
from tfdeploy.experiments.scalars import step_times
from tfdeploy.formatting.humanize import escape_line, format_job_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.course import Course
    from tfdeploy.experiments.scalars import Series

WIDTH, HEIGHT, MARGIN = 100, 24, 2  # of a sparkline, in its own units
SPARKLINE_POINTS = 60
MINUTES = len("2026-11-22 23:57")


@dataclass(frozen=True)
class Losses:
    """The last loss and the best one, each a running mean; NaN if unknown. `sparkline` holds the
    points of an SVG polyline; `description` says the same in words."""

    last: float = math.nan
    best: float = math.nan
    sparkline: str = ""
    description: str = ""


@dataclass(frozen=True)
class Row:
    """`report` is a link; "" for none. `notes` are shown below the name. `step` is None if
    unknown."""

    course: Course
    report: str
    notes: tuple[str, ...]
    step: int | None
    losses: Losses
    tasks: str
    hosts: tuple[str, ...]
    words: str

    @property
    def label(self) -> str:
        return self.course.label

    @property
    def started(self) -> str:
        return format_time(self.course.started_s).removesuffix(" UTC")[:MINUTES]


def make_row(course: Course, report: str, problem: str) -> Row:
    """Return the row. `problem` says why there is no report; "" if there is one."""
    run = course.run
    steps = step_times(course.scalars) or course.log_losses.series
    is_epoch = not course.scalars and course.log_losses.unit == "epoch"
    words = Redactor(run.inventory, os.environ)(" ".join(show_words(run.words)))
    return Row(
        course=course,
        report=report,
        notes=tuple(filter(None, (
            run.id if run.name else "", "of a sweep" if run.of_sweep else "", problem,
        ))),
        step=steps[-1].step if steps and not is_epoch else None,
        losses=summarize_losses(_loss_series(course)),
        tasks=format_job_counts(Counter(each.task.job for each in run.plan.placements)),
        hosts=tuple(escape_line(host) for host in run.plan.hosts),
        words=escape_line(words),
    )  # fmt: skip


def _loss_series(course: Course) -> Series:
    """Return the scalar "loss", or else the first one whose name has it, such as Keras's
    `epoch_loss`; without scalars the losses of the chief's log."""
    names = sorted(name for name in course.scalars if LOSS in name.lower())
    name = LOSS if LOSS in course.scalars else next(iter(names), "")
    return course.scalars[name] if name else course.log_losses.series


def summarize_losses(series: Series) -> Losses:
    if not series:
        return Losses()
    window = max(1, (series[-1].step - series[0].step) // DEFAULT_WINDOWS)
    smoothed = smooth_series(series, window)
    finite = [value for value in smoothed if math.isfinite(value)]
    if not finite:
        return Losses()
    first, last, best = finite[0], smoothed[-1], min(finite)
    text = f"loss from {first:.4g} to {finite[-1]:.4g}"
    return Losses(last, best, _sparkline(smoothed), text)


def _sparkline(values: Sequence[float]) -> str:
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
