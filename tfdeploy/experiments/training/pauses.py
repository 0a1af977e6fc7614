"""The times in which a run was stopped and later resumed. They are no training time. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.shared import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.experiments.plots import Line
    from tfdeploy.experiments.run_report.history import Change
    from tfdeploy.experiments.scalars import Point, Series


class Pause(NamedTuple):
    """From the end of the chief to its next start, in seconds since the epoch."""

    begin: float
    end: float


def pauses(changes: Sequence[Change]) -> tuple[Pause, ...]:
    """Return the pauses in the history of the chief. A restart by its supervisor is none."""
    return tuple(
        Pause(ended.at, start.at)
        for ended, start in pairwise(changes)
        if ended.state in records.ENDED
    )


def trained_seconds(times: Sequence[float], found: Sequence[Pause]) -> tuple[float, ...]:
    """Return the training time at each of these rising times, from 0 at the first one on. Nothing
    counts between the last report before a pause and the first one after it."""
    steps = (0.0 if _lies_between(a, b, found) else b - a for a, b in pairwise(times))
    return tuple(accumulate(steps, initial=0.0)) if times else ()


def steps_per_s(series: Series, found: Sequence[Pause]) -> float:
    """Return the mean speed while the run was not paused, with all restarts; NaN if unknown."""
    moves = list(trained_pairs(series, found))
    duration_s = sum(b.time_s - a.time_s for a, b in moves)
    return sum(b.step - a.step for a, b in moves) / duration_s if duration_s > 0 else math.nan


def trained_pairs(series: Series, found: Sequence[Pause]) -> Iterator[tuple[Point, Point]]:
    """Yield each point with the next one, except where a pause is between them."""
    for a, b in pairwise(series):
        if not _lies_between(a.time_s, b.time_s, found):
            yield a, b


def with_gaps(line: Line, found: Sequence[Pause], started_s: float) -> Line:
    """Return a line over the seconds since `started_s` with a gap where the run was paused."""
    for pause in found:
        at = pause.begin - started_s
        index = next((n for n, x in enumerate(line.xs) if x > at), 0)
        if index:
            line = replace(
                line,
                xs=_insert(line.xs, index, at),
                ys=_insert(line.ys, index, math.nan),
                raw=_insert(line.raw, index, math.nan),
                low=_insert(line.low, index, math.nan),
                high=_insert(line.high, index, math.nan),
            )
    return line


def _insert(values: Sequence[float], index: int, value: float) -> Sequence[float]:
    return [*values[:index], value, *values[index:]] if values else values


def _lies_between(begin: float, end: float, found: Sequence[Pause]) -> bool:
    return any(begin <= pause.begin < end for pause in found)
