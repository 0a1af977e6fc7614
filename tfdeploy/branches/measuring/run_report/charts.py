"""Draw what runs report on one time axis: the loss, the speed in steps/s, the use of GPUs, and
other scalars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring import metrics, plots, scalars
from tfdeploy.branches.measuring.history import trained_pairs, with_gaps
from tfdeploy.branches.measuring.metrics import LOSS
from tfdeploy.branches.measuring.plots import Line, Panel
from tfdeploy.branches.measuring.run_report import over_time
from tfdeploy.branches.measuring.run_report.over_time import TimePanel, TrainedRun
from tfdeploy.branches.measuring.scalars import SPEED
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.branches.measuring.run_report.over_time import TimeAxis

MAX_CHARTS = 8
MAX_POINTS = 500  # of one line: more can't be seen, and make the page large
SPEED_POINTS = 60
WINDOWS = 20  # a line is the mean over this part of all points
MAX_TITLE = 60
LOG_RATIO = 100.0  # a loss that falls by more than this gets a logarithmic axis


@dataclass(frozen=True)
class Chart:
    """A drawn panel. `svg` is markup; `description` says the same in words. `legend` has the labels
    of its lines if they are not those of runs."""

    title: str
    svg: str
    description: str
    legend: tuple[str, ...] = ()


def draw(runs: Sequence[TrainedRun], prefix: str) -> tuple[tuple[Chart, ...], tuple[str, ...]]:
    """Return the charts, and the names of the scalars that are left out. `prefix` is that of ids in
    the page."""
    names = _ordered({name for run in runs for name in run.scalars})
    labels = [run.label for run in runs]
    found = [TimePanel(name, _scalar_lines(runs, name), labels) for name in names[:MAX_CHARTS]]
    speed = TimePanel("steps/s", _speed_lines(runs), labels)
    every = (*found[:1], speed, over_time.gpu_panel(runs), *found[1:])
    panels = [panel for panel in every if panel.lines]
    axis = over_time.of_all(panels)
    charts = tuple(draw_panel(p, axis, f"{prefix}-{n}") for n, p in enumerate(panels))
    more = tuple(escape_line(name) for name in names[MAX_CHARTS:])
    return (*charts, *_log_charts(runs, labels, prefix)), more


def _log_charts(runs: Sequence[TrainedRun], labels: Sequence[str], prefix: str) -> Iterator[Chart]:
    """Yield a chart for each unit of losses that logs have."""
    for unit, name in (("step", scalars.STEP_LOSS), ("epoch", scalars.EPOCH_LOSS)):
        lines = []
        for run in runs:
            series = run.log_losses.get(name, ())
            shown = series[:: math.ceil(len(series) / MAX_POINTS)] if series else ()
            xs = [float(point.step) for point in shown]
            lines += [Line(run.label, xs, scalars.values_of(shown))] if shown else []
        if lines:
            title = "loss, as the log prints it"
            panel = Panel(title, unit, lines, log_y=_needs_log_axis(title, lines))
            svg = plots.to_web_svg(panel, labels, f"{prefix}-{unit}")
            yield Chart(title, svg, f"The loss over {unit}s. {describe(lines)}")


def _ordered(names: Iterable[str]) -> list[str]:
    """Return "loss" first, then other losses, then all other names."""
    without_speed = {name for name in names if name != SPEED}
    main = metrics.main_loss(sorted(without_speed))
    return sorted(without_speed, key=lambda name: (name != main, LOSS not in name.lower(), name))


def _scalar_lines(runs: Sequence[TrainedRun], name: str) -> list[Line]:
    lines = []
    for run in runs:
        series = run.scalars.get(name, ())
        if series:
            every, last = math.ceil(len(series) / MAX_POINTS), len(series) - 1
            shown = [*range(0, last, every), last]
            xs = [series[n].time_s - run.started_s for n in shown]
            values = scalars.values_of(series)
            line = Line(run.label, xs, _means(values, shown), [values[n] for n in shown])
            lines.append(with_gaps(line, run.pauses, run.started_s))
    return lines


def _means(values: Sequence[float], indexes: Iterable[int]) -> list[float]:
    """Return the running mean over 1/WINDOWS of the values at these indexes."""
    window = max(1, len(values) // WINDOWS)
    parts = (values[max(0, index + 1 - window) : index + 1] for index in indexes)
    return [sum(part) / len(part) for part in parts]


def _speed_lines(runs: Sequence[TrainedRun]) -> list[Line]:
    """Return the steps/s between SPEED_POINTS moments of each run."""
    lines = []
    for run in runs:
        main = metrics.main_loss(list(run.scalars))
        steps = scalars.step_times(scalars.of_same_clock(run.scalars, main))
        chosen = steps[:: math.ceil(len(steps) / SPEED_POINTS)] if steps else ()
        pairs = [(a, b) for a, b in trained_pairs(chosen, run.pauses) if b.time_s > a.time_s]
        if pairs:
            xs = [b.time_s - run.started_s for _, b in pairs]
            ys = [(b.step - a.step) / (b.time_s - a.time_s) for a, b in pairs]
            lines.append(with_gaps(Line(run.label, xs, ys), run.pauses, run.started_s))
    return lines


def draw_panel(panel: TimePanel, axis: TimeAxis, name: str) -> Chart:
    """Draw a panel on an axis. `name` is the prefix of its ids."""
    title = escape_line(panel.title)
    title = title if len(title) <= MAX_TITLE else f"{title[:MAX_TITLE]}…"
    drawn = Panel(
        title, f"{axis.unit} since the run's start", [axis.scale(line) for line in panel.lines],
        log_y=_needs_log_axis(title, panel.lines), xlimits=axis.limits,
        ylimits=(0.0, panel.top) if panel.top else None,
    )  # fmt: skip
    svg = plots.to_web_svg(drawn, panel.labels, name)
    legend = tuple(panel.labels) if panel.legend else ()
    return Chart(title, svg, f"{title} over time. {describe(panel.lines)}", legend)


def _needs_log_axis(title: str, lines: Sequence[Line]) -> bool:
    """Return whether it is a loss whose values differ so much that a linear axis hides most of
    them."""
    numbers = [y for line in lines for y in line.ys if math.isfinite(y)]
    if LOSS not in title.lower() or not numbers or min(numbers) <= 0:
        return False
    return max(numbers) / min(numbers) > LOG_RATIO


def describe(lines: Sequence[Line]) -> str:
    """Return the lines in words."""
    texts = []
    for line in lines:
        numbers = [y for y in line.ys if math.isfinite(y)]
        if numbers:
            low, high = min(numbers), max(numbers)
            texts.append(
                f"{line.label}: from {numbers[0]:.4g} to {numbers[-1]:.4g}, "
                f"lowest {low:.4g}, highest {high:.4g}"
            )
    return "; ".join(texts)
