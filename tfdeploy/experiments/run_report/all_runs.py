"""One page about all runs on the controller, with a link to the report of each: `tfdeploy runs
--html`."""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tfdeploy import run as runs
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.experiments.run_report import page as report
from tfdeploy.experiments.run_report.facts import gather
from tfdeploy.experiments.run_report.redact import Redactor, show_words
from tfdeploy.experiments.run_report.summary import format_time
from tfdeploy.experiments.scalars import smooth_series, step_times, window_of
from tfdeploy.experiments.training import course, metrics
from tfdeploy.experiments.training.metrics import LOSS
from tfdeploy.formatting.humanize import escape_line, format_job_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.training.course import Course
    from tfdeploy.experiments.training.metrics import Metric
    from tfdeploy.run import Run

PAGE, SCRIPT = "runs.html", "sort.js"
FILE, REPORT = "index.html", "report.html"
WIDTH, HEIGHT, MARGIN = 100, 24, 2  # of a sparkline, in its own units
SPARKLINE_POINTS = 60
MINUTES = len("2026-11-22 23:57")


@dataclass(frozen=True)
class Index:
    """The rows, the newest run first, and why other records could not be read."""

    rows: tuple[Row, ...]
    unreadable: tuple[str, ...]


def gather_index(hosts: Path, file: Path, on_report: Callable[[str], None]) -> Index:
    """Read all runs beside the hosts file, and write the reports that are missing or older than
    what was collected. `file` is the page from which they are linked; `on_report` is called with
    the run whose report is being written. Raises RunError if there is no run, or no hosts file.
    """
    runs.check_hosts_file(hosts)
    base = hosts.absolute().parent / runs.FOLDER
    folders = [base / run_id for run_id in reversed(runs.run_ids(base))]
    if not folders:
        raise RunError(f"there is no run in {base}", "pass --hosts FILE, or start a run")
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(_read_row(runs.read_folder(folder), file, on_report))
        except OSError as error:
            unreadable.append(escape_line(f"{error.filename} can't be read: {error.strerror}"))
        except TfdeployError as error:
            unreadable.append(escape_line(f"{folder.name}: {error}"))
    return Index(tuple(rows), tuple(unreadable))


def render_index(index: Index) -> str:
    """Return the page. Only its own script may run in it: the policy has the script's hash."""
    script = report.read_template(SCRIPT)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    projects = dict.fromkeys(row.course.run.inventory.project for row in index.rows)
    return report.render_template(
        PAGE,
        rows=index.rows,
        metrics=columns(index.rows),
        unreadable=index.unreadable,
        title=f"Runs of {', '.join(projects)}" if projects else "Runs",
        script=script,
        script_policy=f"; script-src 'sha256-{digest}'",
    )


def _read_row(run: Run, file: Path, on_report: Callable[[str], None]) -> Row:
    known = course.read(run, None)
    if not (run.folder / "logs").is_dir():
        return make_row(known, "", "not collected")
    own = run.folder / REPORT
    try:
        if not _is_current(own, run):
            on_report(run.id)
            report.write(own, report.render([gather(run, None)]), run.open())
    except RunError as error:
        return make_row(known, "", f"no report: {escape_line(str(error))}")
    return make_row(known, _link(own, file), "")


def _is_current(own: Path, run: Run) -> bool:
    """Return whether the report is newer than the collected logs: each collect writes them."""
    collected = max((file.stat().st_ctime for file in (run.folder / "logs").iterdir()), default=0.0)
    return own.is_file() and own.stat().st_mtime >= collected


def _link(own: Path, file: Path) -> str:
    """Return a relative link, so that the folder may be moved or sent as a whole."""
    return quote(os.path.relpath(own, file.absolute().parent))


@dataclass(frozen=True)
class Sparkline:
    """The running mean of the loss: the points of an SVG polyline, and the same in words."""

    points: str = ""
    description: str = ""


@dataclass(frozen=True)
class Row:
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
        metrics=_by_name(metrics.of_run(course)),
        sparkline=draw_sparkline(_loss_series(course)),
        tasks=format_job_counts(Counter(each.task.job for each in run.plan.placements)),
        hosts=tuple(escape_line(host) for host in run.plan.hosts),
        words=escape_line(words),
    )  # fmt: skip


def columns(rows: Sequence[Row]) -> tuple[tuple[str, bool], ...]:
    """Return the metrics that the page has columns for, each with whether any run has validated it:
    the loss, and the one that most other runs have."""
    counts = Counter(name for row in rows for name in row.metrics if name != LOSS)
    names = [LOSS, *(name for name, _ in counts.most_common(1))]
    return tuple(
        (name, any(m.validation for m in _metrics_of(rows, name)))
        for name in names
        if _metrics_of(rows, name) or name == LOSS
    )


def _metrics_of(rows: Sequence[Row], name: str) -> list[Metric]:
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
