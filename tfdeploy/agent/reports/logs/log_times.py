"""When a log's lines were written: an index beside the log, which the supervisor writes.

Each line is `<time> <span> <inode> <offset>`: what the file has from the offset on, up to the next
line's offset, was written in `span` seconds from this time on, by this host's clock. A log that
grows all the time gets a line a second. Only MAX_SPANS lines are kept: the older half is then
merged in pairs, so old times are less exact than new ones. A rotation leaves out the spans of the
file that it deletes.
"""

from __future__ import annotations

import math
import os
import time

from ....shared import TYPE_CHECKING, filesystem

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    Span = Tuple[float, float, int, int]  # time, span in seconds, inode, offset

SUFFIX = ".times"
SPAN_S = 1.0
MAX_SPANS = 2048  # about 80 kB
PRIVATE = 0o600


class LogTimes:
    """The index of one log; only the task's supervisor writes it."""

    def __init__(self, log: str) -> None:
        self._path = log + SUFFIX
        self._spans = read(log)
        self._is_whole = bool(self._spans)  # a broken line must not be continued

    def add(self, inode: int, offset: int, now: Optional[float] = None) -> None:
        """Add that the file is written from `offset` on now. Never raises OSError: after a full
        disk the whole index is written again."""
        now = time.time() if now is None else now
        last = self._spans[-1] if self._spans else None
        if last and last[2] == inode and 0 <= now - last[0] < SPAN_S:
            return
        self._spans.append((math.floor(now * 10) / 10, SPAN_S, inode, offset))
        if len(self._spans) > MAX_SPANS:
            self._spans = _merge_older_half(self._spans)
            self._is_whole = False
        self._write()

    def keep_only(self, inode: int) -> None:
        """Forget all files but one: the others are deleted, and their inodes are used again."""
        self._spans = [span for span in self._spans if span[2] == inode]
        self._is_whole = False

    def _write(self) -> None:
        try:
            if self._is_whole:
                _append(self._path, _lines(self._spans[-1:]))
            else:
                filesystem.replace_file(self._path, _lines(self._spans), PRIVATE)
            self._is_whole = True
        except OSError:
            self._is_whole = False


def read(log: str) -> List[Span]:
    """Return the index of a log, oldest first; [] if there is none."""
    try:
        with open(log + SUFFIX, "rb") as file:
            lines = file.read(MAX_SPANS * 100).split(b"\n")[:-1]
        return [_span(line) for line in lines]
    except (OSError, ValueError, IndexError):
        return []


def first_since(spans: List[Span], moment: float) -> Optional[Span]:
    """Return the first span that may have lines of this moment or later. Pure."""
    return next((span for span in spans if span[0] + span[1] >= moment), None)


def _span(line: bytes) -> Span:
    at, span_s, inode, offset = line.split()
    return float(at), float(span_s), int(inode), int(offset)


def _lines(spans: List[Span]) -> bytes:
    return b"".join(b"%.1f %.1f %d %d\n" % span for span in spans)


def _append(path: str, line: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE)
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError("no space for the whole line")
    finally:
        os.close(descriptor)


def _merge_older_half(spans: List[Span]) -> List[Span]:
    """Merge each two neighbours of the older half that are in one file. Pure."""
    half = len(spans) // 2
    merged: List[Span] = []
    for number in range(0, half, 2):
        pair = spans[number : min(number + 2, half)]
        first, last = pair[0], pair[-1]
        if first[2] == last[2] and last[0] >= first[0]:
            merged.append((first[0], last[0] + last[1] - first[0], first[2], first[3]))
        else:
            merged += pair
    return merged + spans[half:]
