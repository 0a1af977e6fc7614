"""What training costs, from the price of an hour of each host. Pure."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import PlanError
from tfdeploy.experiments.speed.results import Cell, Prices
from tfdeploy.formatting.hostlist import expand_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdeploy.experiments.repeats import Spread
    from tfdeploy.experiments.speed.results import CellResults, Sweep

FLAG = "--price-per-hour"
HOUR_S = 3600.0
MILLION = 1e6
EXPECTED = f"expected a number, or HOST=NUMBER: {FLAG} 0.40 {FLAG} 'gpu-[01-04]=3.06'"


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


def parse(words: Sequence[str], hosts: Iterable[str]) -> Prices | None:
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
