"""The median and the range of repeated measurements, and when two of them differ."""

from __future__ import annotations

from itertools import combinations

import pytest

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


def test_two_differ_if_their_ranges_do_not_overlap():
    low, high = spread_of([1.0, 1.1, 1.2]), spread_of([1.3, 1.4, 1.5])
    assert low.differs_from(high)
    assert high.differs_from(low)
    assert not low.differs_from(spread_of([1.2, 1.4, 1.5]))
    assert not low.differs_from(spread_of([0.5, 1.1, 9.0]))


@pytest.mark.parametrize("few", [[1.0], [1.0, 1.1]])
def test_fewer_than_three_measurements_never_differ(few):
    assert not spread_of(few).differs_from(spread_of([8.0, 8.0, 8.0]))
    assert not spread_of([8.0, 8.0, 8.0]).differs_from(spread_of(few))


@pytest.mark.parametrize(("repeats", "one_in"), [(3, 10), (5, 126)])
def test_equal_things_differ_by_chance_as_often_as_documented(repeats, one_in):
    """All orders of the values of two equal things are equally likely."""
    values = set(range(2 * repeats))
    splits = [set(split) for split in combinations(values, repeats)]
    differ = [split for split in splits if spread_of(split).differs_from(spread_of(values - split))]
    assert len(splits) / len(differ) == one_in
