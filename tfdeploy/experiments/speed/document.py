"""The document of a sweep: every run, and what follows from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tfdeploy.experiments.speed import verdicts
from tfdeploy.experiments.speed.results import Cell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.experiments.repeats import Spread
    from tfdeploy.experiments.speed.results import CellResults, Result, Sweep
    from tfdeploy.experiments.speed.verdicts import Cheapest, PsVerdict, WorkerVerdict


@dataclass(frozen=True)
class SweepCell:
    """All runs with these numbers of tasks. Numbers are medians over the measured ones; a range is
    the lowest and the highest, null with a single run."""

    MERGED: ClassVar = {"cell": Cell}

    cell: Cell
    result: str
    """`measured` if any run was, or else the result of the last one."""
    reason: str
    """Why the first run that was not measured ended or failed."""
    steps_per_s: float | None
    """The steps per second."""
    steps_per_s_range: tuple[float, ...] | None
    """Its range."""
    examples_per_s: float | None
    """The examples per second; null without --examples-per-step."""
    speedup: float | None
    """The speed relative to `base`."""
    speedup_range: tuple[float, ...] | None
    """From the slowest run over the fastest of `base`, to the fastest over the slowest."""
    efficiency: float | None
    """The part of the ideal speed-up that was reached."""
    price_per_million: float | None
    """The price of a million examples, or of steps (`synchronous`: batches) if examples are not
    counted; null without --price-per-hour."""
    runs: tuple[Result, ...]
    """The runs."""


@dataclass(frozen=True)
class SweepDocument:
    """The measurements, as in sweep.json."""

    terms: Mapping[str, Any]
    """What all runs have in common: keys of hosts.toml, the release, the options."""
    examples_per_step: int | None
    """The value of --examples-per-step."""
    synchronous: bool
    """Whether each step takes its examples from every worker."""
    base: Cell | None
    """The measured numbers of tasks with the fewest workers: `speedup` is relative to them."""
    cells: list[SweepCell]
    """One object for each cell."""
    enough_ps: dict[str, int]
    """For each number of workers with a verdict, the fewest ps that are enough."""
    ps_verdicts: list[PsVerdict]
    """One verdict for each number of workers that was measured with several numbers of ps."""
    worker_verdicts: list[WorkerVerdict]
    """One verdict for each measured cell and the next larger one with as many ps."""
    cheapest: Cheapest | None
    """The cheapest cell; null without --price-per-hour or with a single cell."""


def sweep_document(sweep: Sweep) -> SweepDocument:
    of_ps = list(verdicts.enough_ps(sweep))
    return SweepDocument(
        terms=sweep.terms,
        examples_per_step=sweep.examples_per_step,
        synchronous=sweep.synchronous,
        base=sweep.base.cell if sweep.base else None,
        cells=[_cell(sweep, results) for results in sweep],
        enough_ps={str(each.workers): each.enough for each in of_ps if each.enough is not None},
        ps_verdicts=of_ps,
        worker_verdicts=list(verdicts.more_workers(sweep)),
        cheapest=verdicts.cheapest(sweep),
    )


def _cell(sweep: Sweep, results: CellResults) -> SweepCell:
    speedup, steps_per_s = sweep.speedup(results), results.steps_per_s
    return SweepCell(
        cell=results.cell,
        result=results.result,
        reason=results.failure.reason if results.failure else "",
        steps_per_s=_median(steps_per_s),
        steps_per_s_range=_range(steps_per_s),
        examples_per_s=_median(sweep.examples_per_s(results)),
        speedup=_median(speedup),
        speedup_range=_range(speedup),
        efficiency=sweep.efficiency(results),
        price_per_million=_median(verdicts.per_million(sweep, results)),
        runs=results.runs,
    )


def _median(spread: Spread | None) -> float | None:
    return spread.median if spread else None


def _range(spread: Spread | None) -> tuple[float, float] | None:
    """Return None for a single measurement: it has no range."""
    return (spread.low, spread.high) if spread and spread.n > 1 else None
