"""Lay out the histories of tasks on one time axis. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring.history import Span, spans
from tfdeploy.formatting.humanize import format_count, format_duration
from tfdeploy.shared import records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.branches.measuring.history import Change

SCALE = 1000  # the width of a bar in its own units
MIN_WIDTH, END_WIDTH = 3.0, 8.0  # a restart of one second in a run of a day is still visible
TICKS = 4
LEGEND = (
    (records.STARTING, "starting: its program loads"),
    (records.READY, "ready: its port answers, or it runs"),
    (records.BACKOFF, "backoff: waits for its restart"),
    (records.SUCCEEDED, "succeeded"),
    (records.FAILED, "failed"),
    (records.STOPPED, "stopped"),
    (records.LOST, "lost: its supervisor is gone"),
)


@dataclass(frozen=True)
class Bar:
    """A span on the axis: `x` and `width` are in 1/SCALE of it."""

    span: Span
    x: float
    width: float

    @property
    def css_class(self) -> str:
        """RUNNING looks as STARTING: the process runs and is not READY yet."""
        state = records.STARTING if self.span.state == records.RUNNING else self.span.state
        return state.lower()

    @property
    def title(self) -> str:
        duration = f" for {format_duration(self.span.duration_s)}" if self.span.duration_s else ""
        reason = f": {self.span.reason}" if self.span.reason else ""
        return f"{self.span.state}{duration}{reason}"


@dataclass(frozen=True)
class TaskRow:
    """The bars of a task, and how often it was restarted."""

    task: str
    bars: tuple[Bar, ...]
    restarts: int

    @property
    def summary(self) -> str:
        """Return the row in words."""
        states = ", ".join(bar.title for bar in self.bars[:12])
        more = f" and {len(self.bars) - 12} more" if len(self.bars) > 12 else ""
        return f"{self.task}, {format_count(self.restarts, 'restart')}: {states}{more}"


@dataclass(frozen=True)
class Timeline:
    """All rows; `begin` and `end` are in seconds since the epoch."""

    rows: tuple[TaskRow, ...]
    begin: float
    end: float

    @property
    def ticks(self) -> tuple[str, ...]:
        length = self.end - self.begin
        return tuple(format_duration(length * number / TICKS) for number in range(TICKS + 1))

    @property
    def states(self) -> tuple[tuple[str, str], ...]:
        """Return those of LEGEND that occur, with their CSS class."""
        used = {bar.css_class for row in self.rows for bar in row.bars}
        return tuple((state.lower(), text) for state, text in LEGEND if state.lower() in used)


def lay_out(histories: Mapping[str, Sequence[Change]], until: float) -> Timeline | None:
    """Return the timeline of tasks with their changes; None if no change is known.

    A task that has not ended is drawn to `until`, the time up to which its history is known.
    """
    known = {task: changes for task, changes in histories.items() if changes}
    if not known:
        return None
    begin = min(change.at for changes in known.values() for change in changes)
    is_live = any(changes[-1].state not in records.ENDED for changes in known.values())
    last = max(change.at for changes in known.values() for change in changes)
    end = max(last, until) if is_live else last
    length = max(end - begin, 1e-3)
    rows = tuple(_row(task, changes, begin, end, length) for task, changes in known.items())
    return Timeline(rows, begin, end)


def _row(task: str, changes: Sequence[Change], begin: float, end: float, length: float) -> TaskRow:
    bars = tuple(_bar(span, begin, length) for span in spans(changes, end))
    restarts = max(change.restarts for change in changes)
    return TaskRow(task, bars, restarts)


def _bar(span: Span, begin: float, length: float) -> Bar:
    x = (span.begin - begin) / length * SCALE
    width = span.duration_s / length * SCALE
    if span.state in records.ENDED:
        return Bar(span, min(x, SCALE - END_WIDTH), END_WIDTH)
    width = max(width, MIN_WIDTH)
    return Bar(span, round(min(x, SCALE - width), 2), round(width, 2))
