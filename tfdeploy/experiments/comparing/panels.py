"""The plot of `compare`: a panel for each x axis, and a line or a band for each group of runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError
from tfdeploy.experiments.comparing.axis import Axis
from tfdeploy.experiments.comparing.examples import OPTION
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.experiments.repeats import Curve, summarize
from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.comparing.comparison import Comparison, Group, RunSeries


TITLES = {
    Axis.STEP: "step",
    Axis.TIME: "seconds of training since the run's first event",
    Axis.EXAMPLES: "examples, of all workers",
}


def panels(
    comparison: Comparison, axis: Axis | None = None, log: bool | None = None
) -> tuple[Panel, ...]:
    """Return a panel over this axis, or by default over each axis that the runs have. By default
    the y axis is as `is_log` says. Raises RunError if the runs have no such axis."""
    chosen = [axis] if axis else [Axis.STEP, *_known_axes(comparison)]
    scale = "y" if (is_log(comparison) if log is None else log) else ""
    return tuple(_panel(comparison, each, scale) for each in chosen)


def is_log(comparison: Comparison) -> bool:
    """Return whether a logarithmic y axis is the default: for a loss that is always positive."""
    finite = [value for each in comparison.runs for value in each.smoothed if math.isfinite(value)]
    return comparison.is_loss and min(finite, default=0.0) > 0.0


def _known_axes(comparison: Comparison) -> list[Axis]:
    has_times = any(_xs(each, Axis.TIME) for each in comparison.runs)
    has_examples = any(_xs(each, Axis.EXAMPLES) for each in comparison.runs)
    return [Axis.TIME] * has_times + [Axis.EXAMPLES] * has_examples


def _panel(comparison: Comparison, axis: Axis, log: str) -> Panel:
    lines = [_line(group, axis) for group in comparison.groups if _has(group, axis)]
    if not lines and axis is Axis.EXAMPLES:
        raise RunError("--x examples: the examples of a step are unknown", f"add {OPTION} N")
    if not lines:
        raise RunError("--x time: the runs have no times", "name a (?P<time>…) in --pattern")
    return Panel("", TITLES[axis], comparison.tag, lines, log=log)


def _has(group: Group, axis: Axis) -> bool:
    return all(_xs(each, axis) for each in group.runs)


def _xs(run: RunSeries, axis: Axis) -> Sequence[float] | None:
    """Return the x of each point; None if unknown."""
    if axis is Axis.STEP:
        return run.steps
    if axis is Axis.EXAMPLES:
        return run.examples
    return run.seconds if math.isfinite(run.seconds[0]) else None


def _line(group: Group, axis: Axis) -> Line:
    points = format_count(group.points, "point")
    if len(group.runs) == 1:
        run = group.runs[0]
        return Line(group.label, _xs(run, axis) or (), run.smoothed, run.values, note=points)
    band = summarize([Curve(_xs(each, axis) or (), each.smoothed) for each in group.runs])
    if not band.xs:
        raise RunError(f"the runs of {group.label} have no {axis} in common", "compare them singly")
    note = f"median and range of\n{len(group.runs)} runs, {points}"
    return Line(group.label, band.xs, band.median, low=band.low, high=band.high, note=note)
