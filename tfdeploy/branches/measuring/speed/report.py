"""The report of a sweep, as a document, in rows and in sentences: how many ps for how many workers?
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.branches.measuring.speed import verdicts
from tfdeploy.branches.measuring.speed.results import ENDED, MIN_RUNS, Cell
from tfdeploy.formatting.humanize import KILO, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.branches.measuring.speed.results import CellResults, Result, Spread, Sweep
    from tfdeploy.branches.measuring.speed.verdicts import PsVerdict, WorkerVerdict

UNKNOWN = "-"
WHY = ""  # the column that says why a cell has no speed needs no name
COLUMNS = ("PS", "WORKERS", "RUNS", "STEPS/S", "SPEED-UP", "EFFICIENCY", WHY)
NEAR_THE_FASTEST = f"no other is measurably faster, or not by {1 - verdicts.ENOUGH:.0%}"
EXPLANATION = (
    "each speed is the median of its runs, with the slowest and the fastest; two cells differ if",
    "these ranges do not overlap. The first quarter of the time is a warm-up and does not count",
)


@dataclass(frozen=True)
class SweepCell:
    """All runs with these numbers of tasks: medians, and ranges of several runs."""

    MERGED: ClassVar = {"cell": Cell}

    cell: Cell
    result: str
    """`measured` if any run was, else that of the last one."""
    reason: str
    """Why the first run that was not measured ended or failed."""
    steps_per_s: float | None
    """The steps per second."""
    steps_per_s_range: tuple[float, ...] | None
    """Its range."""
    speedup: float | None
    """The speed relative to `base`."""
    speedup_range: tuple[float, ...] | None
    """Its range: slowest over fastest of `base`, fastest over slowest."""
    efficiency: float | None
    """The part of the ideal speed-up that was reached."""
    runs: tuple[Result, ...]
    """The runs."""


@dataclass(frozen=True)
class SweepDocument:
    """The measurements."""

    synchronous: bool
    """Whether each step takes a batch from every worker."""
    base: Cell | None
    """The smallest measured cell: `speedup` is relative to it."""
    cells: list[SweepCell]
    """One object for each cell."""
    ps_verdicts: list[PsVerdict]
    """One for each number of workers with several numbers of ps."""
    worker_verdicts: list[WorkerVerdict]
    """One for each cell and the next larger one with as many ps."""


def sweep_document(sweep: Sweep) -> SweepDocument:
    return SweepDocument(
        synchronous=sweep.synchronous,
        base=sweep.base.cell if sweep.base else None,
        cells=[_cell(sweep, results) for results in sweep],
        ps_verdicts=list(verdicts.enough_ps(sweep)),
        worker_verdicts=list(verdicts.more_workers(sweep)),
    )


def _cell(sweep: Sweep, results: CellResults) -> SweepCell:
    speedup, steps_per_s = sweep.speedup(results), results.steps_per_s
    return SweepCell(
        cell=results.cell,
        result=results.result,
        reason=results.failure.reason if results.failure else "",
        steps_per_s=_median_of(steps_per_s),
        steps_per_s_range=_range_of(steps_per_s),
        speedup=_median_of(speedup),
        speedup_range=_range_of(speedup),
        efficiency=sweep.efficiency(results),
        runs=results.runs,
    )


def _median_of(spread: Spread | None) -> float | None:
    return spread.median if spread else None


def _range_of(spread: Spread | None) -> tuple[float, float] | None:
    """Return None for a single measurement: it has no range."""
    return (spread.low, spread.high) if spread and spread.n > 1 else None


# Rows and sentences


def line(result: Result) -> str:
    """Return one line such as `1 ps, 2 workers: 31.2 steps/s (repeat 2)`."""
    if result.result == ENDED or result.rate is None:
        verb = "not compared" if result.result == ENDED else result.result
        return f"{result.cell}: {verb}: {_first_line(result)}"
    return f"{result.cell}: {figure(result.rate.steps_per_s)} steps/s (repeat {result.repeat})"


def row(sweep: Sweep, results: CellResults) -> dict[str, str]:
    speed, speedup = results.steps_per_s, sweep.speedup(results)
    efficiency = sweep.efficiency(results)
    return {
        "PS": str(results.cell.ps),
        "WORKERS": str(results.cell.workers),
        "RUNS": _counted(results),
        "STEPS/S": f"{figure(speed.median)}{_range(speed, figure)}" if speed else results.result,
        "SPEED-UP": f"{_ratio(speedup.median)}x{_range(speedup, _ratio)}" if speedup else UNKNOWN,
        "EFFICIENCY": UNKNOWN if efficiency is None else f"{efficiency:.0%}",
        WHY: f"{results.failure.run}: {_first_line(results.failure)}" if results.failure else "",
    }


def remarks(sweep: Sweep) -> Iterator[str]:
    """Yield the lines below the table: what the speed-up means, and which differences were
    measured. If nothing was measured, yield the whole reason of the first failure."""
    if not sweep.base:
        yield from (results.failure.reason for results in list(sweep)[:1] if results.failure)
        return
    counted = "batches: a step takes one from every worker" if sweep.synchronous else "steps"
    yield f"speed-up over {sweep.base.cell}, in {counted}"
    yield from EXPLANATION
    yield from _sources(sweep)
    if any(len(results.measured) < MIN_RUNS for results in sweep.measured):
        yield f"a cell with fewer than {MIN_RUNS} runs is not compared: raise --repeats"
    yield from _more_workers(sweep)
    yield from (text for each in verdicts.enough_ps(sweep) if (text := _enough_ps(each)))


def figure(value: float) -> str:
    """Return a number with three digits, or with all digits before the point."""
    return f"{value:.3g}" if abs(value) < KILO else f"{value:.0f}"


# Cells


def _range(spread: Spread, text: Callable[[float], str]) -> str:
    """Return the slowest and the fastest of several runs, such as ` (9.8-10.1)`."""
    return f" ({text(spread.low)}-{text(spread.high)})" if spread.n > 1 else ""


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _counted(results: CellResults) -> str:
    measured, runs = len(results.measured), len(results.runs)
    return f"{measured}" if measured == runs else f"{measured} of {runs}"


def _first_line(result: Result) -> str:
    return (result.reason.splitlines() or [""])[0]


# Sentences


def _sources(sweep: Sweep) -> Iterator[str]:
    rates = [run.rate for results in sweep.measured for run in results.measured if run.rate]
    from_log = sum(rate.source == "log" for rate in rates)
    if from_log:
        runs = format_count(from_log, "run")
        yield f"the steps of {runs} are those in the chief's log, at the times its lines arrived"


def _more_workers(sweep: Sweep) -> Iterator[str]:
    for ps, changes in groupby(verdicts.more_workers(sweep), key=lambda each: each.ps):
        repeated = (each for each in changes if each.verdict != verdicts.FEW_RUNS)
        parts = [f"{each.workers} workers after {each.before}: {each.verdict}" for each in repeated]
        if parts:
            yield f"with {ps} ps: {'; '.join(parts)}"


def _enough_ps(verdict: PsVerdict) -> str:
    """Return a sentence; "" if there are too few runs."""
    workers = format_count(verdict.workers, "worker")
    if verdict.enough is not None:
        verb = "is" if verdict.enough == 1 else "are"
        return f"for {workers}: {verdict.enough} ps {verb} enough ({NEAR_THE_FASTEST})"
    compared = " and ".join(map(str, verdict.ps))
    found = f"for {workers}: {verdict.reason} between {compared} ps"
    return found if verdict.reason == verdicts.NO_DIFFERENCE else ""
