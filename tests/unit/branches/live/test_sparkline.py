from __future__ import annotations

import pytest

from tfdeploy.branches.live.summary import BLOCKS, sparkline


@pytest.mark.parametrize(
    ("values", "width", "text"),
    [
        ([], 8, ""),
        ([3.0], 8, "▁"),
        ([2.0, 2.0], 8, "▁▁"),
        ([0.0, 1.0], 8, "▁█"),
        (range(8), 8, BLOCKS),
        (range(800), 8, BLOCKS),
        ([9.0, 9.0, 1.0, 1.0], 2, "█▁"),
        ([-1e308, 0.0], 2, "▁█"),
    ],
)
def test_values_become_blocks_from_the_lowest_to_the_highest(values, width, text):
    assert sparkline(values, width) == text


def test_values_of_which_the_span_is_not_finite_are_drawn():
    assert len(sparkline([-1.7e308, 0.0, 1.7e308], 3)) == 3
