"""The JSON document of a sweep: every run, and what follows from them. Pure.

Numbers that are unknown are null. A range is the lowest and the highest value.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfdeploy.experiments.speed import price, verdicts

if TYPE_CHECKING:
    from tfdeploy.experiments.repeats import Spread
    from tfdeploy.experiments.speed.results import Cell, CellResults, Result, Sweep


def to_document(sweep: Sweep) -> dict[str, Any]:
    enough = {str(each.workers): each.enough for each in verdicts.enough_ps(sweep)}
    return {
        "terms": dict(sweep.terms),
        "examples_per_step": sweep.examples_per_step,
        "synchronous": sweep.synchronous,
        "base": sweep.base and _name(sweep.base.cell),
        "cells": [_cell(sweep, results) for results in sweep],
        "enough_ps": {workers: ps for workers, ps in enough.items() if ps is not None},
        "ps_verdicts": [
            {"workers": each.workers, "ps": list(each.compared), "enough": each.enough,
             "reason": each.reason} for each in verdicts.enough_ps(sweep)
        ],
        "worker_verdicts": [each._asdict() for each in verdicts.more_workers(sweep)],
        "too_fast": [
            {**each._asdict(), "cell": _name(each.cell), "base": _name(each.base)}
            for each in verdicts.too_fast(sweep)
        ],
        "cheapest": _cheapest(sweep),
    }  # fmt: skip


def _name(cell: Cell) -> dict[str, int]:
    return {"ps": cell.ps, "workers": cell.workers}


def _cell(sweep: Sweep, results: CellResults) -> dict[str, Any]:
    speedup, steps_per_s = sweep.speedup(results), results.steps_per_s
    return {
        **_name(results.cell),
        "result": results.result,
        "reason": results.failure.reason if results.failure else "",
        "steps_per_s": steps_per_s and steps_per_s.median,
        "steps_per_s_range": _range(steps_per_s),
        "examples_per_s": _median(sweep.examples_per_s(results)),
        "speedup": speedup and speedup.median,
        "speedup_range": _range(speedup),
        "efficiency": sweep.efficiency(results),
        "price_per_million": _median(price.per_million(sweep, results)),
        "load": asdict(results.load),
        "runs": [_run(run) for run in results.runs],
    }


def _run(run: Result) -> dict[str, Any]:
    steps_per_s, seconds, source = run.rate or (None, None, None)
    return {
        "repeat": run.repeat,
        "run": run.run,
        "hosts": list(run.hosts),
        "result": run.result,
        "reason": run.reason,
        "steps_per_s": steps_per_s,
        "seconds": seconds,
        "source": source,
        "load": asdict(run.load),
    }


def _median(spread: Spread | None) -> float | None:
    return spread.median if spread else None


def _range(spread: Spread | None) -> list[float] | None:
    """Return null for a single measurement: it has no range."""
    return [spread.low, spread.high] if spread and spread.n > 1 else None


def _cheapest(sweep: Sweep) -> dict[str, Any] | None:
    found = price.cheapest(sweep)
    if not found:
        return None
    equal = [_name(cell) for cell in found.equal]
    return {**_name(found.cell), "price_per_million": found.price.median, "no_difference": equal}
