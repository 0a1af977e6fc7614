"""What repeated measurements say: the median and range of numbers and of curves, and whether two of
them differ. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_RUNS = 3  # of two, the ranges of equal things are separate in one of three cases
MAX_POINTS = 500  # of a line: more can't be seen


class Spread(NamedTuple):
    """The median of `n` measurements, and the smallest and the largest of them."""

    median: float
    low: float
    high: float
    n: int

    def scaled(self, factor: float) -> Spread:
        """Return all values times a positive factor."""
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.n)

    def inverse(self, numerator: float) -> Spread:
        """Return a number divided by all values."""
        values = (numerator / self.median, numerator / self.high, numerator / self.low)
        return Spread(*values, self.n)

    def over(self, base: Spread) -> Spread:
        """Return the ratio of the medians, between the smallest and the largest possible ratio of
        one measurement of each."""
        ratios = (self.median / base.median, self.low / base.high, self.high / base.low)
        return Spread(*ratios, min(self.n, base.n))

    @property
    def is_enough(self) -> bool:
        """Whether there are enough measurements to compare them with others."""
        return self.n >= MIN_RUNS

    def differs_from(self, other: Spread) -> bool:
        """Return whether both have enough measurements and their ranges don't overlap.

        Of two equal things this says so by chance, of one pair in C(2n, n) / 2: in ten if each is
        measured three times, in 126 if five times.
        """
        return self.is_enough and other.is_enough and not self._overlaps(other)

    def _overlaps(self, other: Spread) -> bool:
        return self.low <= other.high and other.low <= self.high


def spread_of(values: Iterable[float]) -> Spread:
    """Return the spread of at least one value; of NaN if one of them is not finite."""
    ordered = sorted(values)
    if not all(map(math.isfinite, ordered)):
        return Spread(math.nan, math.nan, math.nan, len(ordered))
    return Spread(median(ordered), ordered[0], ordered[-1], len(ordered))


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
    spreads = [spread_of(_value_at(curve, x) for curve in curves) for x in xs]
    middle, lows, highs = (tuple(spread[n] for spread in spreads) for n in range(3))
    return Band(tuple(xs), middle, lows, highs)


def _value_at(curve: Curve, x: float) -> float:
    """Return the value at an x between the first and the last one of the curve."""
    right = bisect_left(curve.xs, x)
    if curve.xs[right] == x:
        return curve.ys[right]
    left_x, right_x = curve.xs[right - 1], curve.xs[right]
    part = (x - left_x) / (right_x - left_x)
    return curve.ys[right - 1] * (1 - part) + curve.ys[right] * part
