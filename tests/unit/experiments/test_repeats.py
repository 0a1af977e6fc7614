"""The median and the range of repeated measurements."""

from __future__ import annotations

from tfdeploy.experiments.repeats import Spread, spread_of


def test_a_spread_has_the_median_and_the_range():
    assert spread_of([3.0, 1.0, 2.5]) == Spread(2.5, 1.0, 3.0, 3)
    assert spread_of([4.0]) == Spread(4.0, 4.0, 4.0, 1)
    assert spread_of([1.0, 2.0]).median == 1.5


def test_a_ratio_spans_from_the_slowest_over_the_fastest_to_the_fastest_over_the_slowest():
    assert spread_of([8.0, 10.0, 20.0]).over(spread_of([2.0, 4.0, 5.0, 5.0])) == (
        *(10.0 / 4.5, 8.0 / 5.0, 20.0 / 2.0),
        3,
    )


def test_a_factor_scales_all_values():
    assert spread_of([1.0, 2.0, 4.0]).scaled(2.0) == Spread(4.0, 2.0, 8.0, 3)
