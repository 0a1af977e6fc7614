"""What repeated measurements say: their median and range. Pure."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Spread(NamedTuple):
    """The median of `n` measurements, and the smallest and the largest of them."""

    median: float
    low: float
    high: float
    n: int

    def scaled(self, factor: float) -> Spread:
        """Return all values times a positive factor."""
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.n)

    def over(self, base: Spread) -> Spread:
        """Return the ratio of the medians, between the smallest and the largest possible ratio of
        one measurement of each."""
        ratios = (self.median / base.median, self.low / base.high, self.high / base.low)
        return Spread(*ratios, min(self.n, base.n))


def spread_of(values: Iterable[float]) -> Spread:
    """Return the spread of at least one value; of NaN if one of them is not finite."""
    ordered = sorted(values)
    if not all(map(math.isfinite, ordered)):
        return Spread(math.nan, math.nan, math.nan, len(ordered))
    return Spread(median(ordered), ordered[0], ordered[-1], len(ordered))
