"""What is told of a sweep, in rows and sentences: how many ps for how many workers? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.speedup import ENOUGH
from tfdeploy.words import KILO, counted, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.speedup import Result, Sweep

NOBODY_TOLD = "-"
MARGIN = 1 - ENOUGH
HOW = (
    "the first quarter of the time is left out, as a warm-up; cores and bytes are those of the",
    "busiest ps, worker and host (all its interfaces, loopback too). OTHERS are cores that a host",
    "spent on anything else: with many of them a figure says little",
)


def line(sweep: Sweep, result: Result) -> str:
    """`1 ps, 2 workers: 31.2 steps/s, 1.8x`."""
    if result.rate is None:
        return f"{result.cell}: {result.result}: {_first_line(result)}"
    return f"{result.cell}: {figure(result.rate.steps_per_s)} steps/s, {_speedup(sweep, result)}"


def columns(sweep: Sweep) -> tuple[str, ...]:
    examples = ("EXAMPLES/S",) if sweep.examples_per_step else ()
    load = ("PS CORES", "WORKER CORES", "OTHERS", "NETWORK")
    return ("PS", "WORKERS", "STEPS/S", "SECONDS", *examples, "SPEED-UP", *load, "RUN", "")


def row(sweep: Sweep, result: Result) -> tuple[str, ...]:
    steps = figure(result.rate.steps_per_s) if result.rate else result.result
    examples = (figure(sweep.examples_per_s(result)),) if sweep.examples_per_step else ()
    load, traffic = result.load, result.load.network_bytes_per_s
    return (
        str(result.cell.ps),
        str(result.cell.workers),
        steps,
        figure(result.rate and result.rate.seconds),
        *examples,
        _speedup(sweep, result),
        figure(load.ps_cores),
        figure(load.worker_cores),
        figure(load.other_cores),
        NOBODY_TOLD if traffic is None else f"{size(int(traffic))}/s",
        result.run,
        _first_line(result),
    )


def remarks(sweep: Sweep) -> Iterator[str]:
    """What the speed-up is of, and what the table comes to; or why there is none, at length."""
    if not sweep.base:
        yield from (each.reason for each in list(sweep)[:1])
    else:
        of = "examples: a step takes some from every worker" if sweep.synchronous else "steps"
        yield f"speed-up against {sweep.base.cell}, in {of}"
        yield from HOW
    for cell in sweep.enough().values():
        workers = counted(cell.workers, "worker")
        yield f"for {workers}: {cell.ps} ps, as fast as any number here within {MARGIN:.0%}"


def figure(value: float | None) -> str:
    """Three digits, or all that stand before the point."""
    if value is None:
        return NOBODY_TOLD
    return f"{value:.3g}" if abs(value) < KILO else f"{value:.0f}"


def _speedup(sweep: Sweep, result: Result) -> str:
    speedup = sweep.speedup(result)
    return NOBODY_TOLD if speedup is None else f"{speedup:.2f}x"


def _first_line(result: Result) -> str:
    return (result.reason.splitlines() or [""])[0]
