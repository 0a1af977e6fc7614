"""Many names in few characters: gpu[001-003,007], ps[0-1], chief. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FEW = 3  # so many are written out
MOST = 10_000  # names that one text may stand for
SPAN = re.compile(r" *([0-9]{1,9})(?:-([0-9]{1,9}))? *")
BRACKETS = 8
LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


def folded(names: Iterable[str]) -> str:
    """All of them, each once: those that differ in their last number alone stand together, where
    the first of them stood. Leading zeros are kept."""
    known = list(dict.fromkeys(names))
    if len(known) <= FEW:
        return ", ".join(known)
    kinds: dict[tuple[str, str | None], list[str]] = {}
    for name in known:
        before, number, after = _parted(name)
        kinds.setdefault((before, after), []).append(number)
    return ", ".join(f"{before}{_numbers(n)}{after or ''}" for (before, after), n in kinds.items())


def unfolded(text: str) -> list[str]:
    """The names that a text with numbers in brackets stands for, in its order: folded() backwards,
    for one text; there may be several brackets. Raises ValueError where they hold anything else."""
    before, bracket, rest = text.partition("[")
    if not bracket:
        return [text]
    if rest.count("[") >= BRACKETS:
        raise ValueError(f"expected {BRACKETS} brackets at most")
    inside, closed, after = rest.partition("]")
    if not closed:
        raise ValueError('expected a "]" behind the "["')
    numbers = [number for span in inside.split(",") for number in _spanned(span)]
    behind = unfolded(after)
    _refuse_more_than_most(len(numbers) * len(behind))
    return [f"{before}{number}{name}" for number in numbers for name in behind]


def _spanned(span: str) -> list[str]:
    found = SPAN.fullmatch(span)
    first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
    if int(first) > int(last):
        raise ValueError(
            f'found [{span[:20]}], expected numbers as in "gpu[01-16]" or "gpu[1-3,7]"'
        )
    _refuse_more_than_most(int(last) - int(first) + 1)
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _refuse_more_than_most(count: int) -> None:
    if count > MOST:
        raise ValueError(f"found {count} names, expected {MOST} at most")


def _parted(name: str) -> tuple[str, str, str | None]:
    """What stands before the last number, the number, and what stands behind it."""
    numbered = LAST_NUMBER.fullmatch(name)
    return (numbered[1], numbered[2], numbered[3]) if numbered else (name, "", None)


def _numbers(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    spans: list[tuple[str, str]] = []
    for number in sorted(numbers, key=lambda number: (int(number), len(number))):
        if spans and number == _next(spans[-1][1]):
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    listed = (first if first == last else f"{first}-{last}" for first, last in spans)
    return f"[{','.join(listed)}]"


def _next(number: str) -> str:
    return str(int(number) + 1).zfill(len(number))
