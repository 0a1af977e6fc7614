"""Draw numbers as one line of blocks. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return finite values as at most `width` blocks, from the lowest to the highest of them. Of
    more values, neighbours are averaged."""
    points = _averages(values, width)
    if not points:
        return ""
    lowest = min(points)
    span = max(points) / 2 - lowest / 2  # halved, because the difference may be no finite number
    last = len(BLOCKS) - 1
    heights = [(point / 2 - lowest / 2) / span * last if span else 0 for point in points]
    return "".join(BLOCKS[round(height)] for height in heights)


def _averages(values: Sequence[float], width: int) -> list[float]:
    count = min(len(values), width)
    bounds = [round(index * len(values) / count) for index in range(count + 1)] if count else []
    groups = [values[start:end] for start, end in pairwise(bounds)]
    return [sum(value / len(group) for value in group) for group in groups]
