"""Those lines of a log that match a pattern, or were written since some moment.

They are selected on the host, so that only they use the network.
"""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from contextlib import contextmanager

from ....shared import TYPE_CHECKING
from ...refusal import Refusal
from . import log_times
from .tail import LINES_LOST, Tail, cursor_at_line

if TYPE_CHECKING:
    from typing import Callable, Deque, Iterator, List, Optional, Tuple

PATTERN_CPU_S = 2.0  # for a chunk of a log, which takes a few milliseconds
MAX_PATTERN_CHARS = 1000
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def tail(
    task: str, path: str, lines: Optional[int], cursor: Optional[str], moment: Optional[float]
) -> Tuple[Tail, Optional[int]]:
    """Open a log of which only lines of `moment` or later are wanted (None: all), and of those that
    it has now the last `lines`; also return the limit that remains to be kept.

    Times are known to a second; a line is rather shown than left out. A cursor continues where an
    earlier request ended: then there is neither a moment nor a limit.
    """
    start = cursor
    if cursor is None and moment is not None:
        start = cursor_since(path, moment)
    limit = lines if cursor is None else None
    return Tail(task, path, None if start is None else 0, start), limit


def cursor_since(path: str, moment: float) -> str:
    """Return the cursor of the first line that may have been written at `moment` or later; "" if
    all lines may have been."""
    if _changed_at(path) + log_times.SPAN_S < moment:
        return cursor_at_line(path, None, None)
    spans = log_times.read(path)
    if not spans or spans[0][0] > moment:
        return ""  # no index, or one that starts later than the log
    span = log_times.first_since(spans, moment) or spans[-1]
    return cursor_at_line(path, span[2], span[3])


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def matcher(pattern: str) -> Callable[[List[str]], List[str]]:
    """Return a function that selects lines. What it matches has no colours.

    Raises Refusal if the pattern is invalid, as the function does if it takes more than
    PATTERN_CPU_S for one part of a log.
    """
    if not pattern:
        return lambda lines: lines
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise OverflowError("it has more than {} characters".format(MAX_PATTERN_CHARS))
        search = re.compile(pattern).search
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(
            "--grep: this host's Python can't use the pattern: {}".format(error)
        ) from None

    def matching(lines: List[str]) -> List[str]:
        with _limited_cpu():
            return [x for x in lines if search(COLORS.sub("", x)) or x == LINES_LOST]

    return matching


@contextmanager
def _limited_cpu() -> Iterator[None]:
    """Raise Refusal after PATTERN_CPU_S: `re` has no limit of its own, but it notices signals."""

    def end(*_: object) -> None:
        raise Refusal(
            "--grep: the pattern takes more than {:g} s for a part of a log".format(PATTERN_CPU_S),
            "choose one without repetitions in repetitions, such as (a+)+",
        )

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATTERN_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


class SelectedLines:
    """The selected lines of one log, read as a Tail is. Of those that exist at the first read, only
    the last `limit` are returned (None: all)."""

    def __init__(
        self, tail: Tail, select: Callable[[List[str]], List[str]], limit: Optional[int]
    ) -> None:
        self.task, self.cursor = tail.task, tail.cursor
        self._tail, self._select, self._limit = tail, select, limit

    def read(self, last: bool) -> Iterator[List[str]]:
        """Yield the selected lines of each part; also [], as the cursor has moved."""
        limit, self._limit = self._limit, None
        parts = self._parts(last)
        for cursor, lines in parts if limit is None else self._newest(parts, limit):
            self.cursor = cursor
            yield lines

    def _parts(self, last: bool) -> Iterator[Tuple[str, List[str]]]:
        """Yield the selected lines of each part, and the cursor of its end."""
        for lines in self._tail.read(last):
            yield self._tail.cursor, self._select(lines)

    def _newest(
        self, parts: Iterator[Tuple[str, List[str]]], limit: int
    ) -> Iterator[Tuple[str, List[str]]]:
        """Yield the last `limit` lines part by part, as no answer can have all; then []."""
        newest: Deque[Tuple[str, List[str]]] = deque()
        surplus = -limit
        for cursor, lines in parts:
            newest.append((cursor, lines))
            surplus += len(lines)
            while newest and surplus >= len(newest[0][1]):
                surplus -= len(newest.popleft()[1])
        for cursor, lines in newest:
            yield cursor, lines[max(0, surplus) :]
            surplus = 0
        yield self._tail.cursor, []
