"""The x axes of `compare`: steps, time, and the examples that a run has trained with, on which
different batches compare; and the plot, a panel for each axis, with a line or a band for each group
of runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tfdeploy.errors import RunError
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.experiments.repeats import Curve, summarize
from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.experiments.comparing.comparison import Comparison, Group, RunSeries

OPTION = "--examples-per-step"
Axis = Literal["step", "time", "examples"]
TITLES: dict[Axis, str] = {
    "step": "step",
    "time": "seconds of training since the run's first event",
    "examples": "examples, of all workers",
}


def panels(
    comparison: Comparison, axis: Axis | None = None, log: bool | None = None
) -> tuple[Panel, ...]:
    """Return a panel over this axis, or by default over each axis that the runs have. By default
    the y axis is as `is_log` says. Raises RunError if the runs have no such axis."""
    chosen = [axis] if axis else _known_axes(comparison)
    scale = "y" if (is_log(comparison) if log is None else log) else ""
    return tuple(_panel(comparison, each, scale) for each in chosen)


def is_log(comparison: Comparison) -> bool:
    """Return whether a logarithmic y axis is the default: for a loss that is always positive."""
    finite = [value for each in comparison.runs for value in each.smoothed if math.isfinite(value)]
    return comparison.is_loss and min(finite, default=0.0) > 0.0


def _known_axes(comparison: Comparison) -> list[Axis]:
    return [axis for axis in TITLES if any(_xs(each, axis) for each in comparison.runs)]


def _panel(comparison: Comparison, axis: Axis, log: str) -> Panel:
    lines = [_line(group, axis) for group in comparison.groups if _has(group, axis)]
    if not lines and axis == "examples":
        raise RunError("--x examples: the examples of a step are unknown", f"add {OPTION} N")
    if not lines:
        raise RunError("--x time: the runs have no times", "name a (?P<time>…) in --pattern")
    return Panel("", TITLES[axis], comparison.tag, lines, log=log)


def _has(group: Group, axis: Axis) -> bool:
    return all(_xs(each, axis) for each in group.runs)


def _xs(run: RunSeries, axis: Axis) -> Sequence[float] | None:
    """Return the x of each point; None if unknown."""
    if axis == "step":
        return run.steps
    if axis == "examples":
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


@dataclass(frozen=True)
class Examples:
    """The examples of a step: by the label of a line, and "" for all other lines. If `synchronous`,
    a step takes that many from each worker."""

    per_step: Mapping[str, int]
    synchronous: bool = False

    def count(self, groups: Sequence[Group]) -> tuple[Group, ...]:
        """Return the groups with the examples of a step of each run. Raises RunError if those of a
        line are missing, or a label is none of theirs."""
        labels = [group.label for group in groups]
        for label in self.per_step:
            if label and label not in labels:
                expected = ", ".join(labels)
                raise RunError(f'{OPTION}: found label "{label}"; expected one of {expected}')
        return tuple(
            replace(group, runs=tuple(self._count_run(group.label, each) for each in group.runs))
            for group in groups
        )

    def _count_run(self, label: str, run: RunSeries) -> RunSeries:
        per_step = self.per_step.get(label, self.per_step.get(""))
        if per_step is None:
            raise RunError(f"{OPTION}: {label} has no number", f"add {OPTION} N for all lines")
        if not self.synchronous:
            return replace(run, examples_per_step=per_step)
        if not run.tasks:
            raise RunError(
                f"run {run.run} has no record that says how many workers it had",
                f"leave out --synchronous, and multiply: {OPTION} {label}=N",
            )
        return replace(run, examples_per_step=per_step * _training_tasks(run.tasks))


def parse_examples(texts: Sequence[str], synchronous: bool) -> Examples | None:
    """Parse `N` and `LABEL=N`; None for no text. Raises RunError if one is invalid."""
    if not texts and synchronous:
        raise RunError("--synchronous says what --examples-per-step means", f"add {OPTION} N")
    per_step: dict[str, int] = {}
    for text in texts:
        label, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 10**12):
            raise RunError(f"{OPTION}: found {text}; expected N or LABEL=N, N from 1 to 10^12 - 1")
        if label in per_step:
            name = f'label "{label}"' if label else "a number for all lines"
            raise RunError(f"{OPTION}: {name} occurs twice; expected it once")
        per_step[label] = int(number)
    return Examples(per_step, synchronous) if texts else None


def _training_tasks(tasks: Mapping[str, int]) -> int:
    """Return how many tasks train: a chief of its own does if there are no ps."""
    chiefs = 0 if tasks.get("ps") else tasks.get("chief", 0)
    return max(1, tasks.get("worker", 0) + chiefs)
