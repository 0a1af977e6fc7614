"""Read the history of a task's states, and cut it into spans for a timeline.

A host wrote it, so every value is checked: see agent/reports/history.py for the format.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.formatting.humanize import escape_line
from tfdeploy.shared import records
from tfdeploy.shared.health import FROZEN
from tfdeploy.shared.records import MAX_HISTORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STATES = (
    *(records.STARTING, records.RUNNING, records.READY, records.BACKOFF),
    *records.ENDED,
)
LAST_SECOND = 253402300799.0  # of the year 9999
MAX_TEXT = 500
# As agent/supervision/watch.py words it.
FROZEN_REASON = re.compile(rf"{FROZEN}: no answer on its port for (\d{{1,9}}) s")


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
    if not file.is_file() or file.is_symlink():
        return ()
    with file.open("rb") as content:
        lines = content.read(MAX_HISTORY_BYTES).splitlines()
    return tuple(change for line in lines for change in _parse(line))


def spans(changes: Sequence[Change], until: float) -> tuple[Span, ...]:
    """Return one span for each change, in order. A span lasts to the next change, that of the last
    state to `until`, and that of an end has no length. FROZEN is a span of its own."""
    found: list[Span] = []
    ends = [*(change.at for change in changes[1:]), until]
    reasons = ["", *(change.reason for change in changes), ""]
    for number, (change, end) in enumerate(zip(changes, ends, strict=True)):
        has_ended = change.state in records.ENDED
        end = change.at if has_ended else max(change.at, end)
        # A state keeps the reason of the one before it, until it has one of its own.
        reason = change.reason if has_ended or change.reason != reasons[number] else ""
        found += _cut_frozen(Span(change.state, change.at, end, reason), reasons[number + 2])
    return tuple(found)


def _cut_frozen(span: Span, reason_of_next: str) -> list[Span]:
    """Return the span, or its parts before and since the port stopped answering."""
    frozen = FROZEN_REASON.match(reason_of_next)
    if not frozen or span.state in records.ENDED:
        return [span]
    since = max(span.begin, span.end - int(frozen[1]))
    return [
        Span(span.state, span.begin, since, span.reason),
        Span(FROZEN, since, span.end, frozen[0]),
    ]


def _parse(line: bytes) -> Iterator[Change]:
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        values: dict[str, Any] = json.loads(line)
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


def _clean(text: Any) -> str:
    return escape_line(str(text)[:MAX_TEXT])
