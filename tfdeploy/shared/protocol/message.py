"""What all messages have in common: a tag on the wire, and fields that are checked where a message
is received."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Generic, Iterator, Type, TypeVar, Union, get_args, get_origin

from .record import Fields, dataclass_transform, field_types, to_json

A = TypeVar("A", covariant=True)
T = TypeVar("T")


@dataclass_transform()
class Message(Fields):
    """What one side sends to the other. Requests and answers have a TAG, which names their class on
    the wire; the tables of tags are `agent/verbs.py` and `hosts/answers.py`. A message without one
    is a part of others."""

    TAG = ""

    def __init_subclass__(cls, tag: str = "") -> None:
        super().__init_subclass__()
        cls.TAG = tag


class Request(Message, Generic[A]):
    """`Request[Answer]` is answered by `Answer`, or by a stream of its subclasses. A longer answer
    than MAX_ANSWER_BYTES is refused. A REPEATABLE request does nothing more if a host gets it
    twice. One that only READS_RUN is so, and refused if its run was deleted from the host."""

    REPEATABLE = False
    READS_RUN = False
    MAX_ANSWER_BYTES = 4 << 20


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
# A field of any request: what the controller's record says of the run, and whether it takes the run
# for the newest.
RECORD = "of_record"
# A field of any answer: the tag of its class.
TAG = "tag"


class Done(Message, tag="done"):
    """The answer to a request that has nothing to report."""


LONG_LIST = 64 << 20  # MAX_ANSWER_BYTES of an answer with all files of a folder or a release
MOST = 1 << 63  # above everything that is counted in bytes, seconds or nanoseconds since 1970


class Invalid(ValueError):
    """A message does not have the fields, or the types, that it must have."""


def to_answer(message: Message) -> Dict[str, Any]:
    """Return an answer as JSON, with its tag."""
    return {TAG: message.TAG, **to_json(message)}


def answer_class(request: Type[Request[Any]]) -> Type[Message]:
    """Return the class that answers a request, or the one whose subclasses do."""
    answer: Type[Message] = get_args(vars(request)["__orig_bases__"][0])[0]
    return answer


def parse(kind: Type[T], data: Any) -> T:
    """Read a message, or a record, from decoded JSON; ignore fields that the class does not have.
    Raises Invalid."""
    if not isinstance(data, dict):
        raise Invalid("{} is {:.40}, expected an object".format(kind.__name__, repr(data)))
    types = field_types(kind)
    values = {name: _value(kind, name, types[name], data[name]) for name in types if name in data}
    try:
        return kind(**values)
    except TypeError:
        missing = [name for name in types if name not in data]
        raise Invalid("{} has no {}".format(kind.__name__, ", ".join(missing))) from None


def parse_lines(kind: Type[T], data: bytes) -> Iterator[T]:
    """Yield the records of a file with one in JSON a line; skip a line that is none, or was cut
    off."""
    for line in data.splitlines():
        try:
            yield parse(kind, json.loads(line))
        except (ValueError, RecursionError):
            continue


def _value(kind: Type[Any], name: str, expected: Any, value: Any) -> Any:
    """Check a value of the field `name` by its type; return it with the messages in it read."""
    if expected is Any or (expected in (str, bool) and type(value) is expected):
        return value
    if expected in (int, float) and type(value) in (int, expected) and abs(value) < MOST:
        return value  # NaN is not
    if isinstance(expected, type) and issubclass(expected, Fields):
        return parse(expected, value)
    outer, inner = get_origin(expected), get_args(expected)
    if outer is Union:
        if value is None and type(None) in inner:
            return None
        kinds = [each for each in inner if each is not type(None)]
        if len(kinds) == 1 or type(value) in kinds:
            return _value(kind, name, kinds[0] if len(kinds) == 1 else type(value), value)
    if outer is list and isinstance(value, list):
        return [_value(kind, name, inner[0], each) for each in value]
    if outer is dict and isinstance(value, dict):
        return {key: _value(kind, name, inner[1], each) for key, each in value.items()}
    if outer is tuple and isinstance(value, list) and len(inner) == len(value):
        pairs = zip(inner, value)  # noqa: B905 - Python 3.8 has no strict
        return tuple(_value(kind, name, each, item) for each, item in pairs)
    words = re.sub(r"\w+\.", "", str(expected)) if outer else expected.__name__
    raise Invalid("{}.{} is {:.40}, expected {}".format(kind.__name__, name, repr(value), words))
