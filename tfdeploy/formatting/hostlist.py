"""Write many names in few characters, and read them again: gpu[001-003,007], ps[0-1]. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LISTED = 3  # names that are listed in full
MAX_NAMES = 10_000  # names that one pattern may expand to
MAX_BRACKETS = 8
RANGE = re.compile(r" *([0-9]{1,9})(?:-([0-9]{1,9}))? *")
COMMA_OUTSIDE = re.compile(r",(?![^\[\]]*\])")  # not those within brackets
LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


def fold_names(names: Iterable[str]) -> str:
    """Return all names in one text, each once. Names that differ only in their last number are
    folded into one pattern, at the place of the first; leading zeros are kept."""
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct if len(distinct) <= MAX_LISTED else fold_patterns(distinct))


def fold_patterns(names: Sequence[str]) -> list[str]:
    """Return patterns that together expand to the names. Names that differ only in their last
    number share one."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for name in names:
        before, number, after = _split_at_number(name)
        groups.setdefault((before, after), []).append(number)
    return [
        f"{before}{_fold_numbers(numbers)}{after or ''}"
        for (before, after), numbers in groups.items()
    ]


def expand_names(text: str) -> list[str]:
    """Return the names of one pattern, such as `gpu[1-3,7]`, in its order; the reverse of
    fold_names. A pattern may have several pairs of brackets. Raises ValueError if it is invalid."""
    before, bracket, rest = text.partition("[")
    if not bracket:
        return [text]
    if rest.count("[") >= MAX_BRACKETS:
        raise ValueError(f"expected at most {MAX_BRACKETS} pairs of brackets")
    inside, closed, after = rest.partition("]")
    if not closed:
        raise ValueError('expected a "]" after the "["')
    numbers = [number for span in inside.split(",") for number in _expand_range(span)]
    endings = expand_names(after)
    _check_count(len(numbers) * len(endings))
    return [f"{before}{number}{ending}" for number in numbers for ending in endings]


def expand_list(text: str) -> list[str]:
    """Return the names of patterns that commas separate, such as `ps:0, worker:[0-3,7]`: what
    fold_names writes. Raises ValueError if one is invalid or empty."""
    patterns = [pattern.strip() for pattern in COMMA_OUTSIDE.split(text)]
    if not all(patterns):
        raise ValueError(f'found "{text}"; expected names, separated by commas')
    return [name for pattern in patterns for name in expand_names(pattern)]


def _expand_range(text: str) -> list[str]:
    match = RANGE.fullmatch(text)
    first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
    if int(first) > int(last):
        raise ValueError(
            f'found [{text[:20]}]; expected numbers such as "gpu[01-16]" or "gpu[1-3,7]"'
        )
    _check_count(int(last) - int(first) + 1)
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _check_count(count: int) -> None:
    if count > MAX_NAMES:
        raise ValueError(f"found {count} names; expected at most {MAX_NAMES}")


def _split_at_number(name: str) -> tuple[str, str, str | None]:
    """Return the text before the last number, the number, and the text after it."""
    match = LAST_NUMBER.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", None)


def _fold_numbers(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    ranges: list[tuple[str, str]] = []
    for number in sorted(numbers, key=lambda number: (int(number), len(number))):
        if ranges and number == _successor(ranges[-1][1]):
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    texts = (first if first == last else f"{first}-{last}" for first, last in ranges)
    return f"[{','.join(texts)}]"


def _successor(number: str) -> str:
    return str(int(number) + 1).zfill(len(number))
