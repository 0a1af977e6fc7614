"""What a sweep allows to say: only differences that exceed the spread of its repeats, in speed and
in what training costs by the price of an hour of each host. Pure."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tfdeploy.errors import PlanError
from tfdeploy.experiments.repeats import MIN_RUNS
from tfdeploy.experiments.speed.results import Cell, Prices
from tfdeploy.formatting.hostlist import expand_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.experiments.repeats import Spread
    from tfdeploy.experiments.speed.results import CellResults, Sweep

# The fewest ps with which workers reach this part of their best speed are enough.
ENOUGH = 0.95

FEW_RUNS = f"fewer than {MIN_RUNS} runs"
NO_DIFFERENCE = "no difference measured"
FASTER, SLOWER = "faster", "slower"
FLAG = "--price-per-hour"
HOUR_S = 3600.0
MILLION = 1e6
EXPECTED = f"expected a number, or HOST=NUMBER: {FLAG} 0.40 {FLAG} 'gpu-[01-04]=3.06'"


class PsVerdict(NamedTuple):
    """How many ps are enough for a number of workers."""

    workers: int
    """The number of workers."""
    ps: tuple[int, ...]
    """The numbers of ps that were compared."""
    enough: int | None
    """The fewest ps of which no other number is measurably faster, or not by 5%."""
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
    for line in sweep.by_ps():
        for small, large in pairwise(line):
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


# Prices


@dataclass(frozen=True)
class Cheapest:
    """The cell with the lowest price."""

    KEYS = ("cell", "price_per_million", "equal")
    NAMES: ClassVar = {"equal": "no_difference"}
    MERGED: ClassVar = {"cell": Cell}

    cell: Cell
    price: Spread
    equal: tuple[Cell, ...]
    """Cells whose prices do not differ from it by more than the spread."""

    @property
    def price_per_million(self) -> float:
        """Its price."""
        return self.price.median


def parse_prices(words: Sequence[str], hosts: Iterable[str]) -> Prices | None:
    """Return the prices of --price-per-hour, each for all hosts or for those that it names; None
    without any. Raises PlanError, also if one of `hosts` has no price."""
    by_host: dict[str, float] = {}
    other, known = None, set(hosts)
    for word in words:
        pattern, equals, number = word.rpartition("=")
        price = _parse_number(word, number)
        if not equals:
            other = price
        for name in _names(word, pattern) if equals else []:
            if name not in known:
                raise PlanError(f'{FLAG}: there is no host "{name}" that trains', EXPECTED)
            by_host[name] = price
    missing = sorted(known - by_host.keys()) if other is None else []
    if words and missing:
        hint = f"add {FLAG} {missing[0]}=NUMBER, or one number for all other hosts"
        raise PlanError(f"{FLAG}: host {missing[0]} has no price", hint)
    return Prices(by_host, other) if words else None


def _parse_number(word: str, number: str) -> float:
    with suppress(ValueError):
        price = float(number)
        if math.isfinite(price) and price >= 0:
            return price
    raise PlanError(f'{FLAG}: found "{word}"', EXPECTED)


def _names(word: str, pattern: str) -> list[str]:
    try:
        return expand_names(pattern)
    except ValueError as error:
        raise PlanError(f'{FLAG}: found "{word}": {error}', EXPECTED) from None


def per_million(sweep: Sweep, results: CellResults) -> Spread | None:
    """Return the price of a million examples, or of a million batches if examples are not counted.
    A host costs the same however many of its tasks train; one without a task costs nothing."""
    speed = sweep.examples_per_s(results) or sweep.batches_per_s(results)
    if not speed or not speed.low or not sweep.prices:
        return None
    per_hour = sum(map(sweep.prices.of, results.measured[0].hosts))
    return speed.inverse(per_hour / HOUR_S * MILLION)


def cheapest(sweep: Sweep) -> Cheapest | None:
    """Return the cheapest of at least two cells that can be compared; None if there are fewer, or
    no prices."""
    prices = {results.cell: per_million(sweep, results) for results in sweep.measured}
    known = {cell: price for cell, price in prices.items() if price and price.is_enough}
    if len(known) < 2:
        return None
    cell, price = min(known.items(), key=lambda item: item[1].median)
    equal = (other for other in known if other != cell and not known[other].differs_from(price))
    return Cheapest(cell, price, tuple(equal))
