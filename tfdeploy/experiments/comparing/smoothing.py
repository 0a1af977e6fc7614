"""Running means of a scalar. Pure."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

from tfdeploy.experiments.comparing.comparison import values_of

if TYPE_CHECKING:
    from tfdeploy.experiments.scalars import Series

SPEED = "global_step/sec"  # compat.v1's sessions write it by themselves
DEFAULT_WINDOWS = 20  # by default the running mean is over this part of the longest run


def window_of(series: Series) -> int:
    """Return the steps of the default running mean."""
    return max(1, (series[-1].step - series[0].step) // DEFAULT_WINDOWS)


def smooth_series(series: Series, steps: int) -> tuple[float, ...]:
    """Return, for each point, the mean of the values in the last `steps` steps. NaN and infinity
    make the means of their window NaN.

    The sums are exact fractions: with floats, one huge loss would distort every later mean.
    """
    numbers = [Fraction(value) if math.isfinite(value) else None for value in values_of(series)]
    sums = list(accumulate((number or Fraction() for number in numbers), initial=Fraction()))
    odd_counts = list(accumulate((number is None for number in numbers), initial=0))
    begin, means = 0, []
    for end, point in enumerate(series, 1):
        while series[begin].step <= point.step - steps:
            begin += 1
        mean = float((sums[end] - sums[begin]) / (end - begin))
        means.append(math.nan if odd_counts[end] > odd_counts[begin] else mean)
    return tuple(means)
