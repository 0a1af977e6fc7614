"""What runs report over time, and the one time axis of all charts of a report. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdeploy.experiments.logs import NO_LOSSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.experiments.logs import LogLosses
    from tfdeploy.experiments.plots import Line
    from tfdeploy.experiments.scalars import Series
    from tfdeploy.experiments.training.history import Pause

UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"))
MARGIN = 0.03  # of the axis


@dataclass(frozen=True)
class GpuSample:
    """All GPUs of a task at one time, in seconds since the epoch. `busy_percent` is their mean, NaN
    if none reports it."""

    at: float
    busy_percent: float
    used_gib: float
    total_gib: float


@dataclass(frozen=True)
class TrainedRun:
    """The scalars of a run, by name, and when it started, in seconds since the epoch. If it has no
    scalars, `log_losses` are those in its log. `gpus` is the use of each task's GPUs. No line is
    drawn across `pauses`."""

    label: str
    started_s: float
    scalars: Mapping[str, Series]
    log_losses: LogLosses = NO_LOSSES
    gpus: Mapping[str, Sequence[GpuSample]] = field(default_factory=dict)
    pauses: Sequence[Pause] = ()


@dataclass(frozen=True)
class TimePanel:
    """Lines over the seconds since the start of their run. `labels` are those of all lines with a
    colour, `top` is the end of a y axis from 0, and `legend` whether the panel needs its own."""

    title: str
    lines: Sequence[Line]
    labels: Sequence[str]
    top: float | None = None
    legend: bool = False


@dataclass(frozen=True)
class TimeAxis:
    """The axis in `unit`, each of `divisor` seconds."""

    limits: tuple[float, float] | None
    divisor: float
    unit: str

    def scale(self, line: Line) -> Line:
        return replace(line, xs=[x / self.divisor for x in line.xs])


def of_all(panels: Sequence[TimePanel]) -> TimeAxis:
    """Return the axis that shows every line of the panels."""
    lines = [line for panel in panels for line in panel.lines]
    times = [x for line in lines for x in line.xs if math.isfinite(x)]
    first, last = min(times, default=0.0), max(times, default=0.0)
    divisor, unit = next(((d, u) for limit, d, u in UNITS if last > limit), (1, "seconds"))
    begin, end = min(first, 0.0) / divisor, last / divisor
    margin = MARGIN * (end - begin)
    return TimeAxis((begin - margin, end + margin) if margin > 0 else None, divisor, unit)
