"""The history of a task's states: its changes, its spans for a timeline, and the pauses of a run
that was stopped and later resumed, which are no training time.

A host wrote it, so every value is checked: see agent/reports/history.py for the format.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.formatting.humanize import escape_line
from tfdeploy.shared import records
from tfdeploy.shared.outcome import DURATION_KEY
from tfdeploy.shared.records import MAX_HISTORY_BYTES, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tfdeploy.branches.measuring.plots import Line
    from tfdeploy.branches.measuring.scalars import Point, Series

STATES = (
    *(records.STARTING, records.RUNNING, records.READY, records.BACKOFF),
    *records.ENDED,
)
LAST_SECOND = 253402300799.0  # of the year 9999
MAX_TEXT = 500


@dataclass(frozen=True)
class Change:
    """A state of a task. `at` is in seconds since the epoch, by the clock of the task's host.
    `lost` changes before this one were not recorded, because the host's disk was full."""

    at: float
    state: str
    restarts: int = 0
    reason: str = ""
    cause: str = ""
    lost: int = 0

    @property
    def task_state(self) -> TaskState:
        """Return the task's state since this change, as far as it was recorded."""
        planned = self.reason.startswith(DURATION_KEY)
        return TaskState(self.state, self.at, reason=self.reason, cause=self.cause, planned=planned)


@dataclass(frozen=True)
class Span:
    """A task was in `state` from `begin` to `end`, both in seconds since the epoch."""

    state: str
    begin: float
    end: float
    reason: str = ""

    @property
    def duration_s(self) -> float:
        return self.end - self.begin


def read(file: Path) -> tuple[Change, ...]:
    """Return the changes of a history file; none if there is no such file. Skips what is not a
    change. Raises OSError."""
    return tuple(change for line in read_lines(file) for change in _parse(line))


def read_versions(file: Path) -> dict[str, str]:
    """Return the versions of what was installed at the last start, by name; {} if unknown. Raises
    OSError."""
    for line in reversed(read_lines(file)):
        with suppress(ValueError, AttributeError, RecursionError):
            found = json.loads(line).get("versions")
            if isinstance(found, dict):
                return {_clean(name): _clean(each) for name, each in found.items()}
    return {}


def read_lines(file: Path) -> list[bytes]:
    """Return the lines of a history that was collected; none if there is no such file. Raises
    OSError."""
    if not file.is_file() or file.is_symlink():
        return []
    with file.open("rb") as content:
        return content.read(MAX_HISTORY_BYTES).splitlines()


def spans(changes: Sequence[Change], until: float) -> tuple[Span, ...]:
    """Return one span for each change, in order. A span lasts to the next change, that of the last
    state to `until`, and that of an end has no length."""
    found: list[Span] = []
    ends = [*(change.at for change in changes[1:]), until]
    reasons = ["", *(change.reason for change in changes)]
    for number, (change, end) in enumerate(zip(changes, ends, strict=True)):
        has_ended = change.state in records.ENDED
        end = change.at if has_ended else max(change.at, end)
        # A state keeps the reason of the one before it, until it has one of its own.
        reason = change.reason if has_ended or change.reason != reasons[number] else ""
        found.append(Span(change.state, change.at, end, reason))
    return tuple(found)


def _parse(line: bytes) -> Iterator[Change]:
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        values: dict[str, str | float] = json.loads(line)
        at = float(values["at"])
        if values["state"] in STATES and math.isfinite(at) and 0 < at < LAST_SECOND:
            yield Change(
                at,
                str(values["state"]),
                max(0, int(values.get("restarts", 0))),
                _clean(values.get("reason", "")),
                _clean(values.get("cause", "")),
                max(0, int(values.get("lost", 0))),
            )


def _clean(text: object) -> str:
    return escape_line(str(text)[:MAX_TEXT])


class Pause(NamedTuple):
    """From the end of the chief to its next start, in seconds since the epoch."""

    begin: float
    end: float


def find_pauses(changes: Sequence[Change]) -> tuple[Pause, ...]:
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
            )
    return line


def _insert(values: Sequence[float], index: int, value: float) -> Sequence[float]:
    return [*values[:index], value, *values[index:]] if values else values


def _lies_between(begin: float, end: float, found: Sequence[Pause]) -> bool:
    return any(begin <= pause.begin < end for pause in found)
