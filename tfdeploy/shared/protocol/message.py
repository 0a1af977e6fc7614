"""What all messages have in common: their fields are checked where a message is received."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, Generic, Iterator, Tuple, Type, TypeVar

from .record import Fields, dataclass_transform, field_types

A = TypeVar("A")
T = TypeVar("T")


@dataclass_transform()
class Message(Fields):
    """What one side sends to the other."""


class Request(Message, Generic[A]):
    """`VERB` is its name on the wire, that of the class if it has no other. `Request[Answer]` is
    answered by `Answer`, or, if that has subclasses, by a stream of them. A longer answer than
    MAX_ANSWER_BYTES is refused. A request that READS_RUN is refused if its run was deleted from the
    host."""

    VERB = ""
    READS_RUN = False
    MAX_ANSWER_BYTES = 4 << 20
    ANSWER = ()  # type: Tuple[Type[Any], ...]  # an annotation would make it a field

    def __init_subclass__(cls) -> None:
        if "VERB" not in vars(cls):
            words = ("_" + each.lower() if each.isupper() else each for each in cls.__name__)
            cls.VERB = "".join(words).lstrip("_")

    def __class_getitem__(cls, answer: Any) -> Any:
        if isinstance(answer, TypeVar):
            return cls
        answers = tuple(answer.__subclasses__()) or (answer,)
        return type("Request", (cls,), {"ANSWER": answers, "__module__": cls.__module__})


class RunRequest(Request[A]):
    """A request about a run."""

    project: str
    run: str


class TaskRequest(RunRequest[A]):
    """A request about a task."""

    task: str


# The start of every line that is meant for the controller.
MARK = "tfdeploy-answer:"
ABSENT = 96
# Instead of a verb: the request follows the line, compressed with zlib, in `size` bytes.
COMPRESSED = "compressed"
# A field of any request: the controller is of another version than this agent.
ANOTHER_VERSION = "another_version"
# Another one: the project, the run, and how often it was started as the controller knows it.
RECORD = "of_record"


# The words of older agents for requests about runs that they started. An agent of another version
# is asked with these words.
OLDER_VERBS = {"unfinished_tasks": "going", "read_files": "give"}


class Done(Message):
    """The answer to a request that has nothing to report."""


LONG_LIST = 64 << 20  # MAX_ANSWER_BYTES of an answer with all files of a folder or a release
MOST = 1 << 63  # above everything that is counted in bytes, seconds or nanoseconds since 1970


class Invalid(ValueError):
    """A message does not have the fields, or the types, that it must have."""


def parse(kind: Type[T], data: Any, strict: bool = False) -> T:
    """Read a message, or a record, from decoded JSON. Raises Invalid.

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


def parse_lines(kind: Type[T], data: bytes) -> Iterator[T]:
    """Yield the records of a file with one in JSON a line; skip a line that is none, or was cut
    off."""
    for line in data.splitlines():
        try:
            yield parse(kind, json.loads(line))
        except (ValueError, RecursionError):
            continue


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
    """The message or record that an annotation of `kind` names."""
    found = getattr(sys.modules[kind.__module__], name, None)
    return found if isinstance(found, type) else None


def arguments(request: Request[Any]) -> Dict[str, Any]:
    """Return a request's fields, by name, with the defaults of those that were not sent."""
    return {name: getattr(request, name) for name in field_types(type(request))}
