"""Put all charts of a report on one time axis. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.plots import Line

UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"))
MARGIN = 0.03  # of the axis


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
