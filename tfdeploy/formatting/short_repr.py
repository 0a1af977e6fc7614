"""One line for an object of `import tfdeploy`, as a notebook shows it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from reprlib import Repr
from typing import Any

SHORT = Repr()
SHORT.maxlevel, SHORT.maxstring, SHORT.maxother = 1, 80, 80
SHORT.maxlist = SHORT.maxtuple = SHORT.maxdict = 1


def short_repr(self: Any) -> str:
    """Return a dataclass's name and those of its fields that differ from their defaults, with the
    first entry of lists."""
    shown = [each for each in fields(self) if each.repr]
    values = [(each, getattr(self, each.name)) for each in shown]
    texts = (f"{e.name}={SHORT.repr(value)}" for e, value in values if value != _default(e))
    return f"{type(self).__name__}({', '.join(texts)})"


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
