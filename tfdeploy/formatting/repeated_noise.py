"""Fold what TensorFlow repeats in a log: show the first such line, and then how many more came.

Pure, except for the clock that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

W = TypeVar("W")
COUNT_S = 30.0  # between two lines with a count


@dataclass
class _Repeated:
    shown_at: float
    hidden: int = 0


class NoiseFolder(Generic[W]):
    """The repeated lines of each writer, for example of each task. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._repeated: dict[tuple[W, str], _Repeated] = {}

    def fold(self, writer: W, line: str) -> str | None:
        """Return what to show for a line: the line itself, a line with the count of those that were
        hidden, or None."""
        from tfdeploy.formatting import known_messages  # takes long to import

        noise = known_messages.repeated_noise(line)
        if not noise:
            return line
        now = self._clock()
        repeated = self._repeated.get((writer, noise))
        if repeated is None:
            self._repeated[writer, noise] = _Repeated(now)
            return line
        repeated.hidden += 1
        return _take_count(noise, repeated, now) if now - repeated.shown_at > COUNT_S else None

    def take_hidden(self) -> Iterator[tuple[W, str]]:
        """Yield each writer with the count of its lines that were hidden since the last count."""
        now = self._clock()
        for (writer, noise), repeated in self._repeated.items():
            if repeated.hidden:
                yield writer, _take_count(noise, repeated, now)


def _take_count(noise: str, repeated: _Repeated, now: float) -> str:
    count = format_count(repeated.hidden, "more line")
    repeated.hidden, repeated.shown_at = 0, now
    return f"{noise} … ({count} like this)"
