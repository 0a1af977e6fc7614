"""Read how busy a task's GPUs were.

A host wrote it, so every value is checked: see agent/reports/gpu_history.py for the format.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.shared.records import MAX_HISTORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_GPUS = 64  # of one task
MAX_MIB = 1 << 24  # of one GPU
MIB_IN_GIB = 1024
CLOCK_SLACK_S = 3600.0  # hosts' clocks differ


@dataclass(frozen=True)
class GpuSample:
    """All GPUs of a task at one time, in seconds since the epoch. `busy_percent` is their mean, NaN
    if none reports it."""

    at: float
    busy_percent: float
    used_gib: float
    total_gib: float


def read(file: Path, begin: float, end: float) -> tuple[GpuSample, ...]:
    """Return the samples of a file from `begin` to `end`, give or take what clocks differ, in
    order; none if there is no such file. Skips what is not a sample. Raises OSError."""
    if not file.is_file() or file.is_symlink():
        return ()
    with file.open("rb") as content:
        lines = content.read(MAX_HISTORY_BYTES).splitlines()
    samples = [sample for line in lines for sample in parse(line)]
    first, last = begin - CLOCK_SLACK_S, end + CLOCK_SLACK_S
    return tuple(sorted((s for s in samples if first <= s.at <= last), key=lambda s: s.at))


def parse(line: bytes) -> Iterator[GpuSample]:
    """Yield the sample of a line if it is one. Pure."""
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        values = json.loads(line)
        at, rows = float(values["at"]), values["gpus"]
        if math.isfinite(at) and 0 < len(rows) <= MAX_GPUS and all(map(_is_possible, rows)):
            busy = [float(percent) for _, percent, _, _ in rows if percent is not None]
            yield GpuSample(
                at,
                sum(busy) / len(busy) if busy else math.nan,
                sum(used for _, _, used, _ in rows) / MIB_IN_GIB,
                sum(total for _, _, _, total in rows) / MIB_IN_GIB,
            )


def _is_possible(row: list[float | None]) -> bool:
    """Return whether it has an index, a percentage, and MiB. Raises TypeError or ValueError."""
    _, percent, used, total = row
    has_memory = used is not None and total is not None and 0 <= used <= total <= MAX_MIB
    return has_memory and (percent is None or 0 <= percent <= 100)
