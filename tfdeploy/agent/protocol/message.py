"""What all messages have in common: fields with annotations, checked where a message is received.

Messages are plain classes: defining 60 dataclasses would take the agent 20 ms at each start.
Type checkers see dataclasses (PEP 681), so a renamed field is found before anything runs.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, is_dataclass

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, ClassVar, Dict, Generic, Tuple, Type, TypeVar, dataclass_transform

    A = TypeVar("A")
    T = TypeVar("T")

    @dataclass_transform()
    class Message:
        def __init__(self, *values: Any, **named: Any) -> None: ...

    class Request(Message, Generic[A]):
        VERB: ClassVar[str]
        REPEATABLE: ClassVar[bool]
        MAX_ANSWER_BYTES: ClassVar[int]
        ANSWER: ClassVar[Tuple[Type[Any], ...]]

else:

    class Message:
        """Fields are the annotations of the class, in order; class attributes are defaults."""

        def __init__(self, *values: object, **named: object) -> None:
            names = list(field_types(type(self)))
            given = dict(zip(names, values), **named)  # noqa: B905 - Python 3.8 has no strict
            missing = [name for name in names if name not in given and not hasattr(self, name)]
            unknown = [name for name in given if name not in names]
            if missing or unknown or len(values) > len(names):
                words = "{}: missing {}, unknown {}".format(type(self).__name__, missing, unknown)
                raise TypeError(words)
            self.__dict__.update(given)

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and to_json(other) == to_json(self)

        def __repr__(self) -> str:
            return "{}({})".format(type(self).__name__, to_json(self))

    class Request(Message):
        """`VERB` is its name on the wire. `Request[Answer]` is answered by `Answer`, or, if that
        has subclasses, by a stream of them. A longer answer than MAX_ANSWER_BYTES is refused. A
        REPEATABLE request does nothing more if a host gets it twice."""

        REPEATABLE = False
        MAX_ANSWER_BYTES = 4 << 20

        def __class_getitem__(cls, answer: type) -> type:
            answers = tuple(answer.__subclasses__()) or (answer,)
            return type("Request", (cls,), {"ANSWER": answers, "__module__": cls.__module__})


class Done(Message):
    """The answer to a request that has nothing to report."""


LONG_LIST = 64 << 20  # MAX_ANSWER_BYTES of an answer with all files of a folder or a release
FIELD_TYPES: Dict[Type[Any], Dict[str, str]] = {}  # found so far; an answer has many messages
MOST = 1 << 63  # above everything that is counted in bytes, seconds or nanoseconds since 1970


class Invalid(Exception):
    """A message does not have the fields, or the types, that it must have."""


def to_json(value: Any) -> Any:
    """Return what `json.dumps` takes: messages and dataclasses become objects."""
    if isinstance(value, Message):
        return {name: to_json(getattr(value, name)) for name in field_types(type(value))}
    if is_dataclass(value):
        return asdict(value)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each) for each in value]
    return value


def parse(kind: Type[T], data: Any, strict: bool = False) -> T:
    """Read a message, or a dataclass, from decoded JSON. Raises Invalid.

    Fields that the class does not have are ignored, because a newer version may have added them;
    with `strict`, both sides have the same version, and such a field is a mistake.
    """
    if not isinstance(data, dict):
        raise Invalid("{} is {:.40}, expected an object".format(kind.__name__, repr(data)))
    known = field_types(kind)
    unknown = [name for name in data if name not in known]
    if strict and unknown:
        raise Invalid("{} has no field {!r:.40}".format(kind.__name__, unknown[0]))
    values = {}
    for name, annotation in known.items():
        if name in data:
            values[name] = _value(kind, name, annotation, data[name])
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in known if name not in data]
        raise Invalid("{} has no {}".format(kind.__name__, ", ".join(missing))) from None


def first_that_fits(kinds: Tuple[Type[Any], ...], data: Any) -> Any:
    """Read an answer as the first of `kinds` whose first field it has. Raises Invalid."""
    for kind in kinds:
        if isinstance(data, dict) and next(iter(field_types(kind)), None) in data:
            return parse(kind, data)
    return parse(kinds[0], data)


def _value(kind: Type[Any], name: str, annotation: str, value: Any) -> Any:
    """Check a value by its annotation, which is text in the words of Python 3.8; return it with
    the messages in it read."""
    outer, _, inner = annotation.partition("[")
    inner = inner[:-1]
    if outer == "Optional":
        return None if value is None else _value(kind, name, inner, value)
    if outer == "List" and isinstance(value, list):
        return [_value(kind, name, inner, each) for each in value]
    if outer == "Dict" and isinstance(value, dict):
        of_values = inner.partition(", ")[2]
        return {key: _value(kind, name, of_values, each) for key, each in value.items()}
    if outer == "Tuple" and isinstance(value, list):
        kinds = inner.split(", ")
        if len(kinds) == len(value):
            pairs = zip(kinds, value)  # noqa: B905 - as above
            return tuple(_value(kind, name, each, item) for each, item in pairs)
    if outer == "Union" and any(_is_plain(each, value) for each in inner.split(", ")):
        return value
    if outer == "Any" or _is_plain(outer, value):
        return value
    nested = _class(kind, outer)
    if nested is not None:
        return parse(nested, value)
    found = "{!r:.40}".format(value)
    raise Invalid("{}.{} is {}, expected {}".format(kind.__name__, name, found, annotation))


def _is_plain(annotation: str, value: Any) -> bool:
    if annotation in ("str", "bool"):
        return type(value).__name__ == annotation
    is_number = type(value) is int or (annotation == "float" and type(value) is float)
    return annotation in ("int", "float") and is_number and abs(value) < MOST  # NaN is not


def _class(kind: Type[Any], name: str) -> Any:
    """The message or dataclass that an annotation of `kind` names."""
    found = getattr(sys.modules[kind.__module__], name, None)
    return found if isinstance(found, type) else None


def field_types(kind: Type[Any]) -> Dict[str, str]:
    """Return the type of each field, as text."""
    found = FIELD_TYPES.get(kind)
    if found is None:
        found = {}
        for each in reversed(kind.__mro__):
            found.update(vars(each).get("__annotations__", {}))
        FIELD_TYPES[kind] = found
    return found


def arguments(request: Request[Any]) -> Dict[str, Any]:
    """Return a request's fields, by name, with the defaults of those that were not sent."""
    return {name: getattr(request, name) for name in field_types(type(request))}
