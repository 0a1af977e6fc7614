"""Results are documents: the object that a command returns is what --json prints.

The fields of its class are the keys of the JSON object, and the text below a field says what it
means: `make schemas` makes docs/schemas/ and the lists of docs/json.md from both. This holds for
dataclasses, NamedTuples and the records of shared/. Where an object and its JSON differ, its class
says so:

- `KEYS` are the fields and properties that are keys, if not all fields are.
- `NAMES` maps fields and properties to their keys, if these have other names.
- `MERGED` maps fields and properties to their classes, whose keys become keys of the object, unless
  it has them already; they are null if the value is None.
- A class with `__str__`, and without `KEYS`, is printed as text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tfdeploy.errors import TfdeployError, individual_errors
from tfdeploy.shared.protocol.record import Fields, field_names


@dataclass(frozen=True)
class Problem:
    """An error or a note."""

    host: str | None
    """The host that it is about."""
    task: str | None
    """The task that it is about."""
    message: str
    """What was found, and what was expected."""
    hint: str | None
    """What to type or to edit next."""
    log: tuple[str, ...]
    """The last lines of the task's log."""


@dataclass(frozen=True)
class Failure:
    """What a command prints instead of its document if it fails."""

    error: TfdeployError
    """Everything that went wrong, in one message."""

    KEYS = ("error", "errors")

    @property
    def errors(self) -> tuple[TfdeployError, ...]:
        """The same, one for each host or task."""
        return individual_errors(self.error)


def to_json(value: Any) -> Any:
    """Return what `json.dumps` takes. A number that is not finite becomes null; an error a Problem,
    and among others one for each host; what is not described, its text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, TfdeployError):
        return to_json(_problem(value))
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if is_object(type(value)):
        return _object(value)
    if isinstance(value, Collection):
        return [to_json(each) for item in value for each in _individual(item)]
    return str(value)


def is_object(kind: type) -> bool:
    """Return whether the objects of a class become JSON objects."""
    if hasattr(kind, "KEYS"):
        return True
    has_fields = is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, Fields)
    return has_fields and "__str__" not in vars(kind)


def keys(kind: type) -> Mapping[str, str | type]:
    """Return the key of each field or property of a class that is shown, or the class of what is
    merged, in their order."""
    shown: Iterable[str] | None = getattr(kind, "KEYS", None)
    if shown is None and is_dataclass(kind):
        shown = [each.name for each in fields(kind)]
    if shown is None:
        shown = getattr(kind, "_fields", None) or field_names(kind)
    others: Mapping[str, str | type] = {**getattr(kind, "NAMES", {}), **getattr(kind, "MERGED", {})}
    return {name: others.get(name, name) for name in shown}


def _object(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in keys(type(value)).items():
        each = getattr(value, name)
        if isinstance(key, str):
            more = {key: to_json(each)}
        else:
            more = dict.fromkeys(keys(key)) if each is None else _object(each)
        found |= {key: more[key] for key in more if key not in found}
    return found


def _individual(value: Any) -> tuple[Any, ...]:
    return individual_errors(value) if isinstance(value, TfdeployError) else (value,)


def _problem(error: TfdeployError) -> Problem:
    *tasks, host = error.names or (None,)
    task = tasks[0] if tasks else None
    return Problem(host, task, error.message, error.hint or None, error.log)
