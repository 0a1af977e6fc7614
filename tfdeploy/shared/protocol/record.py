"""Values with named fields: what `dataclasses` offers, for an agent that starts with each request.

Loading dataclasses takes 5 ms, and defining one of them 0.6 ms; a class of this module takes 0.02.
Type checkers see dataclasses (PEP 681), so a renamed field is found before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Type, TypeVar, get_type_hints

if TYPE_CHECKING:
    from typing import dataclass_transform as dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Do nothing: it is for type checkers, and Python 3.11 has it."""
        return lambda kind: kind


R = TypeVar("R", bound="Record")
T = TypeVar("T")


class Declared:
    """What a record's class says of a field besides its type."""

    def __init__(self, default_factory: Any) -> None:
        self.default_factory = default_factory


def field(*, default_factory: Callable[[], T]) -> T:
    """Declare a field with a fresh default for each record."""
    declared: Any = Declared(default_factory)
    return declared  # type: ignore[no-any-return]


REQUIRED: Any = object()
FIELD_NAMES: Dict[Type[Any], List[str]] = {}  # found so far; an answer has many messages
FIELD_TYPES: Dict[Type[Any], Dict[str, Any]] = {}  # as above


class Fields:
    """Fields are the annotations of the class, in order; class attributes are defaults."""

    def __init__(self, *values: object, **named: object) -> None:
        names = field_names(type(self))
        given = dict(zip(names, values), **named)  # noqa: B905 - Python 3.8 has no strict
        unknown = [name for name in given if name not in names]
        missing = []
        for name in names:
            if name not in given:
                default = getattr(self, name, REQUIRED)
                if default is REQUIRED:
                    missing.append(name)
                else:
                    is_declared = isinstance(default, Declared)
                    given[name] = default.default_factory() if is_declared else default
        if missing or unknown or len(values) > len(names):
            words = "{}: missing {}, unknown {}".format(type(self).__name__, missing, unknown)
            raise TypeError(words)
        self.__dict__.update(given)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and to_json(other) == to_json(self)

    def __repr__(self) -> str:
        given = [(n, v) for n, v in vars(self).items() if v not in (None, "", [], {})]
        values = ", ".join("{}={!r}".format(name, value) for name, value in given)
        return "{}({})".format(type(self).__name__, values)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(Fields):
    """Fields that never change."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("{}.{} cannot be changed".format(type(self).__name__, name))


def replace(record: R, **changes: Any) -> R:
    """Return the record with other values in some fields."""
    return type(record)(**{**vars(record), **changes})


def to_json(value: Any) -> Any:
    """Return what `json.dumps` takes: messages and records become objects."""
    if isinstance(value, Fields):
        return {name: to_json(getattr(value, name)) for name in field_names(type(value))}
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    return value


def field_names(kind: Type[Any]) -> List[str]:
    """Return the names of a class's fields, those of its bases first."""
    found = FIELD_NAMES.get(kind)
    if found is None:
        bases = reversed(kind.__mro__)
        names = (name for base in bases for name in vars(base).get("__annotations__", ()))
        found = FIELD_NAMES[kind] = list(dict.fromkeys(names))
    return found


def field_types(kind: Type[Any]) -> Dict[str, Any]:
    """Return the type of each field. Raises NameError if the module of its class lacks a name in
    the annotation. Only a class that is received needs it, because evaluating takes time."""
    found = FIELD_TYPES.get(kind)
    if found is None:
        found = FIELD_TYPES[kind] = get_type_hints(kind)
    return found
