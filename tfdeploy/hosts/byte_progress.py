"""Progress of files on their way: bytes of how many, rate, and time left."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WINDOW_S = 10.0  # a rate is the average of these last seconds
SAMPLE_S = 0.2
DAY_S = 86400.0
MIN_SHARE = 0.01  # must have moved before a time left of more than a day is shown
SHOWN = 4  # transfers that have a line of their own


class Transfer:
    """The progress of one host's files. One thread updates it, others read it. It never decreases.

    `total` is in bytes, None if it is unknown. `note` says what is done while no byte moves.
    `check` is called at each report, and may raise to end the transfer.
    """

    def __init__(
        self,
        total: int | None = None,
        note: str = "",
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self.total = total
        self.there = 0
        self.moved = 0
        self.file = note
        self._clock = clock
        self._samples: tuple[tuple[float, int], ...] = ((clock(), 0),)

    def __call__(self, file: str, there: int) -> None:
        """Record that `there` bytes of all files have arrived, the last ones of `file`."""
        self._check()
        self.file = file
        self.moved += max(0, there - self.there)
        self.skip(there)
        now = self._clock()
        if now - self._samples[-1][0] >= SAMPLE_S:
            self._samples = (*self._since(now - WINDOW_S), (now, self.moved))

    def skip(self, there: int) -> None:
        """Record that `there` bytes were there before."""
        there = there if self.total is None else min(there, self.total)
        self.there = max(self.there, there)

    @property
    def rate(self) -> float:
        """Bytes per second."""
        now = self._clock()
        then, moved = self._since(now - WINDOW_S)[0]
        return (self.moved - moved) / max(now - then, SAMPLE_S)

    @property
    def figures(self) -> str:
        """`120.0 MB of 1.0 GB, 5.1 MB/s, 2m 50s left`; "" if nothing has moved."""
        if not self.moved:
            return ""
        rate, total = self.rate, self.total
        parts = [format_size(self.there) + (f" of {format_size(total)}" if total else "")]
        if total is None or self.there < total:
            parts.append(f"{format_size(int(rate))}/s")
        left_s = (total - self.there) / rate if total and rate else 0.0
        if left_s and (left_s < DAY_S or self.moved > (total or 0) * MIN_SHARE):
            parts.append(f"{format_duration(left_s)} left")
        return ", ".join(parts)

    def _since(self, moment: float) -> tuple[tuple[float, int], ...]:
        """Return the samples from this moment on; the last one if all are older."""
        samples = self._samples
        return tuple(sample for sample in samples if sample[0] >= moment) or samples[-1:]


class Transfers:
    """The transfers in progress. Any thread may start one. `check` is called at each of their
    reports, and may raise to end the transfer."""

    def __init__(self) -> None:
        self.check: Callable[[], None] = lambda: None
        self._active: dict[Transfer, str] = {}
        self._lock = threading.Lock()

    @contextmanager
    def begin(self, label: str, total: int | None = None, note: str = "") -> Iterator[Transfer]:
        """Record a transfer until the context ends. `label` is its host, or "to " and its host."""
        transfer = Transfer(total, note, check=self.check)
        with self._lock:
            self._active[transfer] = label
        try:
            yield transfer
        finally:
            with self._lock:
                del self._active[transfer]

    def lines(self, *, notes: bool = True) -> list[str]:
        """Return a line for each of the largest transfers that move, or (`notes`) have a note."""
        with self._lock:
            active = list(self._active.items())
        shown = [(label, each) for each, label in active if each.moved or (notes and each.file)]
        shown.sort(key=lambda entry: -(entry[1].total or 0))
        lines = [f"{label}: {', '.join(filter(None, (each.figures, each.file)))}"
                 for label, each in shown[:SHOWN]]  # fmt: skip
        more = len(shown) - SHOWN
        return [*lines, f"and {format_count(more, 'more transfer')}"] if more > 0 else lines
