"""Fold the logs of many tasks: lines that tasks have in common appear once. Pure.

As `clush -b` does, but line by line: what differs is shown for each task in its place, and every
task's lines stay in their order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MAX_COMPARED = 1_000_000  # pairs of lines between the begin and the end that logs have in common
# The time, and for absl the thread, that TensorFlow prints before a message:
# `2026-05-01 10:15:00.123456: I …`, `I0000 00:00:1777630500.123456    4711 …`.
STAMP = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: |(?P<level>[IWEF])\d{4} \d\d:\d\d:\d+\.\d+ +\d+ )"
)


@dataclass(frozen=True)
class Block:
    """Lines that `tasks` have in common. If they differ in TensorFlow's time stamps, "…" replaces
    these."""

    tasks: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass
class _Entry:
    """One line, as it is compared, and as each task wrote it."""

    key: str
    lines: dict[str, str]

    @property
    def text(self) -> str:
        written = set(self.lines.values())
        return written.pop() if len(written) == 1 else self.key


def fold(
    lines: Mapping[str, Sequence[str]], on_limit: Callable[[], None] = lambda: None
) -> list[Block]:
    """Return blocks that together have the lines of every task, by its name, in their order.

    Calls `on_limit` if logs differ in more than MAX_COMPARED pairs of lines: between the begin and
    the end that they have in common, these are not folded.
    """
    order = {task: number for number, task in enumerate(lines)}
    merged: list[_Entry] = []
    for group in _alike(lines):
        merged = _merge(merged, group, on_limit)
    blocks = groupby(merged, key=lambda entry: tuple(sorted(entry.lines, key=order.__getitem__)))
    return [Block(tasks, tuple(entry.text for entry in entries)) for tasks, entries in blocks]


def without_stamp(line: str) -> str:
    """Return a line with "…" in the place of TensorFlow's time stamp."""
    return STAMP.sub(lambda match: f"{match['level'] or ''}… ", line)


def _alike(lines: Mapping[str, Sequence[str]]) -> list[list[_Entry]]:
    """Return the entries of tasks whose lines are all alike, for each such group of tasks."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for task, written in lines.items():
        groups.setdefault(tuple(map(without_stamp, written)), []).append(task)
    return [
        [_Entry(key, {task: lines[task][number] for task in tasks}) for number, key in enumerate(k)]
        for k, tasks in groups.items()
    ]


def _merge(entries: list[_Entry], more: list[_Entry], on_limit: Callable[[], None]) -> list[_Entry]:
    """Return both in one list, with equal lines only once."""
    begin = _common(entries, more)
    end = _common(entries[begin:][::-1], more[begin:][::-1])
    middle, more_middle = entries[begin : len(entries) - end], more[begin : len(more) - end]
    if len(middle) * len(more_middle) > MAX_COMPARED:
        on_limit()
        merged = middle + more_middle
    else:
        merged = _merge_line_by_line(middle, more_middle)
    return [
        *_joined(entries[:begin], more[:begin]),
        *merged,
        *_joined(entries[len(entries) - end :], more[len(more) - end :]),
    ]


def _common(entries: list[_Entry], more: list[_Entry]) -> int:
    """Return with how many equal lines both begin."""
    pairs = enumerate(zip(entries, more, strict=False))
    differing = (number for number, (entry, other) in pairs if entry.key != other.key)
    return next(differing, min(len(entries), len(more)))


def _joined(entries: list[_Entry], more: list[_Entry]) -> list[_Entry]:
    """Return lines that are equal pair by pair."""
    return [
        _Entry(entry.key, {**entry.lines, **other.lines})
        for entry, other in zip(entries, more, strict=True)
    ]


def _merge_line_by_line(entries: list[_Entry], more: list[_Entry]) -> list[_Entry]:
    merged: list[_Entry] = []
    keys = [entry.key for entry in entries], [entry.key for entry in more]
    matcher = SequenceMatcher(None, *keys, autojunk=False)
    for kind, begin, end, more_begin, more_end in matcher.get_opcodes():
        if kind == "equal":
            merged += _joined(entries[begin:end], more[more_begin:more_end])
        else:
            merged += entries[begin:end] + more[more_begin:more_end]
    return merged
