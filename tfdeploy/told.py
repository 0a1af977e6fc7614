"""What hosts say, taken only as it can be meant: one that lies, or is broken, hides no other."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from tfdeploy.agent.records import from_json
from tfdeploy.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
NESTED = re.compile(r"(Optional|List|Dict)\[(?:str, )?(.*)\]")
MOST = 1e18  # above all that is counted in bytes or seconds


def record(host: str, kind: type[T], data: Any) -> T:
    """As records.from_json, of what came from `host`. Raises AgentError where a field holds what it
    can't."""
    made = sound(host, lambda: from_json(kind, data))
    for each in fields(kind):  # type: ignore[arg-type]
        value = getattr(made, each.name)
        if not _fits(str(each.type), value):
            raise AgentError(host, f"its answer makes no sense: {each.name} is {value!r:.40}")
    return made


def sound(host: str, made: Callable[[], T]) -> T:
    """What `made` makes of an answer. Raises AgentError where that fails."""
    try:
        return made()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise AgentError(host, "its answer makes no sense") from None


def _fits(annotation: str, value: Any) -> bool:
    """Annotations of records are text, in the words of Python 3.8."""
    nested = NESTED.fullmatch(annotation)
    if not nested:
        return _is_plain(annotation, value)
    match nested[1]:
        case "Optional":
            return value is None or _fits(nested[2], value)
        case "List":
            return isinstance(value, list) and all(_fits(nested[2], each) for each in value)
        case _:
            return isinstance(value, dict) and all(
                _fits(nested[2], each) for each in value.values()
            )


def _is_plain(annotation: str, value: Any) -> bool:
    if annotation in ("str", "bool"):
        return type(value).__name__ == annotation
    is_number = type(value) is int or (annotation == "float" and type(value) is float)
    return is_number and not math.isnan(value) and abs(value) < MOST
