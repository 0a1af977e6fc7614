"""Summarize repeated runs as one line: their median, and the range from lowest to highest. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_POINTS = 500  # of a line: more can't be seen


class Curve(NamedTuple):
    """Values over rising xs. A NaN leaves a gap."""

    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Band:
    """The median, the lowest and the highest value of all curves at each x."""

    xs: tuple[float, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def summarize(curves: Sequence[Curve]) -> Band:
    """Return the band over the xs that all curves have, with straight lines between their points.

    It has no points if the curves have no x in common. It has a gap if one of them has one.
    """
    low = max(curve.xs[0] for curve in curves)
    high = min(curve.xs[-1] for curve in curves)
    found = sorted({x for curve in curves for x in curve.xs if low <= x <= high})
    xs = found[:: math.ceil(len(found) / MAX_POINTS)] if found else []
    xs += found[-1:] if xs and xs[-1] != found[-1] else []
    columns = [[_value_at(curve, x) for curve in curves] for x in xs]
    values = [_summary(column) for column in columns]
    middle, lows, highs = (tuple(value[n] for value in values) for n in range(3))
    return Band(tuple(xs), middle, lows, highs)


def _summary(values: Sequence[float]) -> tuple[float, float, float]:
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan, math.nan
    return median(values), min(values), max(values)


def _value_at(curve: Curve, x: float) -> float:
    """Return the value at an x between the first and the last one of the curve."""
    right = bisect_left(curve.xs, x)
    if curve.xs[right] == x:
        return curve.ys[right]
    left_x, right_x = curve.xs[right - 1], curve.xs[right]
    part = (x - left_x) / (right_x - left_x)
    return curve.ys[right - 1] * (1 - part) + curve.ys[right] * part
