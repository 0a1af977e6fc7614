"""What a sweep allows to say: only differences that exceed the spread of its repeats. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.branches.measuring.speed.results import MIN_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.branches.measuring.speed.results import CellResults, Spread, Sweep

# The fewest ps with which workers reach this part of their best speed are enough.
ENOUGH = 0.95

FEW_RUNS = f"fewer than {MIN_RUNS} runs"
NO_DIFFERENCE = "no difference measured"
FASTER, SLOWER = "faster", "slower"


class PsVerdict(NamedTuple):
    """How many ps are enough for a number of workers."""

    workers: int
    """The number of workers."""
    ps: tuple[int, ...]
    """The numbers of ps that were compared."""
    enough: int | None
    """The fewest ps of which no other number is measurably 5% faster."""
    reason: str = ""
    """Why there is no verdict: `no difference measured` or `fewer than 3 runs`."""


class WorkerVerdict(NamedTuple):
    """How more workers compare with fewer, with the same number of ps."""

    ps: int
    """The number of ps."""
    before: int
    """The smaller number of workers."""
    workers: int
    """The larger number of workers."""
    verdict: str
    """`faster`, `slower`, `no difference measured` or `fewer than 3 runs`."""


def enough_ps(sweep: Sweep) -> Iterator[PsVerdict]:
    """Yield a verdict for each number of workers that was measured with several numbers of ps."""
    for workers in sorted({results.cell.workers for results in sweep.measured}):
        rows = [results for results in sweep.measured if results.cell.workers == workers]
        if len(rows) > 1:
            yield _enough_ps(sweep, workers, rows)


def _enough_ps(sweep: Sweep, workers: int, rows: list[CellResults]) -> PsVerdict:
    speeds = {results.cell.ps: _speed(sweep, results) for results in rows}
    best = max(speeds.values())
    compared = tuple(speeds)
    if not all(speed.is_enough for speed in speeds.values()):
        return PsVerdict(workers, compared, None, FEW_RUNS)
    if not any(speed.differs_from(best) for speed in speeds.values()):
        return PsVerdict(workers, compared, None, NO_DIFFERENCE)
    return PsVerdict(workers, compared, next(ps for ps in speeds if _suffices(speeds[ps], best)))


def _suffices(speed: Spread, best: Spread) -> bool:
    return not speed.differs_from(best) or speed.median >= ENOUGH * best.median


def more_workers(sweep: Sweep) -> Iterator[WorkerVerdict]:
    """Yield a verdict for each measured cell and the next larger one with as many ps."""
    by_ps = sorted(sweep.measured, key=lambda results: (results.cell.ps, results.cell.workers))
    for small, large in pairwise(by_ps):
        if small.cell.ps == large.cell.ps:
            before, after = _speed(sweep, small), _speed(sweep, large)
            workers = (small.cell.workers, large.cell.workers)
            yield WorkerVerdict(small.cell.ps, *workers, _compare(after, before))


def _compare(speed: Spread, before: Spread) -> str:
    if not (speed.is_enough and before.is_enough):
        return FEW_RUNS
    if not speed.differs_from(before):
        return NO_DIFFERENCE
    return FASTER if speed.median > before.median else SLOWER


def _speed(sweep: Sweep, results: CellResults) -> Spread:
    speed = sweep.batches_per_s(results)
    assert speed  # only of measured cells
    return speed
