"""One line for an object of `import tfdeploy`, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import MISSING, fields
from pathlib import PurePath
from typing import Any

MAX_ENTRIES = 3
MAX_CHARACTERS = 80


def short_repr(self: Any) -> str:
    """Return a dataclass's name and those of its fields that differ from their defaults: large ones
    by their number of entries."""
    shown = [each for each in fields(self) if each.repr]
    values = [(each, getattr(self, each.name)) for each in shown]
    texts = (f"{each.name}={_short(value)}" for each, value in values if value != _default(each))
    return f"{type(self).__name__}({', '.join(texts)})"


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _short(value: Any) -> str:
    if isinstance(value, PurePath):
        return repr(str(value))
    is_text = isinstance(value, str)
    is_large = isinstance(value, Mapping | Sequence | Set) and len(value) > MAX_ENTRIES
    if is_large and not is_text:
        return f"<{len(value)} entries>"
    text = repr(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
