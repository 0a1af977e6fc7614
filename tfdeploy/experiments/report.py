"""The report of a sweep, in rows and sentences: how many ps for how many workers? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.experiments.speedup import ENOUGH
from tfdeploy.formatting.humanize import KILO, format_count, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.experiments.speedup import Result, Sweep

UNKNOWN = "-"
MARGIN = 1 - ENOUGH
EXPLANATION = (
    "the first quarter of the time is a warm-up and does not count; cores and bytes are those of",
    "the busiest ps, worker and host (all network interfaces, with loopback). OTHERS are cores",
    "that a host used for anything else: if they are many, the figures say little",
)


def line(sweep: Sweep, result: Result) -> str:
    """Return one line such as `1 ps, 2 workers: 31.2 steps/s, 1.80x`."""
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
        UNKNOWN if traffic is None else f"{format_size(int(traffic))}/s",
        result.run,
        _first_line(result),
    )


def remarks(sweep: Sweep) -> Iterator[str]:
    """Yield the lines below the table: what the speed-up means, and how many ps are enough. If
    nothing was measured, yield the whole reason of the first failure."""
    if not sweep.base:
        yield from (result.reason for result in list(sweep)[:1])
    else:
        unit = "examples: a step takes a batch from every worker" if sweep.synchronous else "steps"
        yield f"speed-up over {sweep.base.cell}, in {unit}"
        yield from EXPLANATION
    for cell in sweep.enough().values():
        workers = format_count(cell.workers, "worker")
        verb = "is" if cell.ps == 1 else "are"
        yield f"for {workers}: {cell.ps} ps {verb} enough (within {MARGIN:.0%} of the fastest)"


def figure(value: float | None) -> str:
    """Return a number with three digits, or with all digits before the point."""
    if value is None:
        return UNKNOWN
    return f"{value:.3g}" if abs(value) < KILO else f"{value:.0f}"


def _speedup(sweep: Sweep, result: Result) -> str:
    speedup = sweep.speedup(result)
    return UNKNOWN if speedup is None else f"{speedup:.2f}x"


def _first_line(result: Result) -> str:
    return (result.reason.splitlines() or [""])[0]
