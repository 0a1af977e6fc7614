"""The scalars of event files. Sources: event.proto of tensorflow/core/util, summary.proto and
tensor.proto of tensorflow/core/framework."""

from __future__ import annotations

import math
import struct
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple, Union

from .event_records import events, read_varint


class Point(NamedTuple):
    """What was reported for a step. `time_s` is in seconds since the epoch, NaN if unknown; `value`
    is None if only the step was reported."""

    step: int
    time_s: float
    value: Optional[float]


# The fields that are read. Others are skipped.
WALL_TIME, STEP, SUMMARY, VALUE = 1, 2, 5, 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
DTYPE, SHAPE, CONTENT = 1, 2, 4
# DT_FLOAT, DT_DOUBLE, DT_INT32 and DT_INT64: the struct code, and the field for values of the type.
NUMBERS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
VARINT, LENGTH_DELIMITED, FIXED_SIZES = 0, 2, {1: 8, 5: 4}  # wire types


def read_scalars(data: bytes) -> Iterator[Tuple[str, Point]]:
    """Yield the tag and the point of each scalar in a part of an event file."""
    for event in events(data):
        try:
            yield from list(_read_event(event))
        except (AttributeError, LookupError, TypeError, ValueError, struct.error):
            continue  # these bytes are not an Event


def _read_event(event: bytes) -> Iterator[Tuple[str, Point]]:
    fields = dict(_read_fields(event))
    step, time_s = fields.get(STEP, 0), struct.unpack("<d", fields[WALL_TIME])[0]
    if step >> 63 or not math.isfinite(time_s):  # a negative step
        return
    summary = _read_fields(fields.get(SUMMARY, b""))
    for value in [dict(_read_fields(content)) for field, content in summary if field == VALUE]:
        number = _read_number(value)
        if number is not None:
            yield value[TAG].decode(), Point(step, time_s, number)


def _read_number(value: Dict[int, Any]) -> Optional[float]:
    """Return the number, or None for an image, a text or the like. compat.v1 writes a simple_value,
    TensorFlow 2 a tensor."""
    if SIMPLE_VALUE in value:
        return float(struct.unpack("<f", value[SIMPLE_VALUE])[0])
    tensor = dict(_read_fields(value.get(TENSOR, b"")))
    if tensor.get(SHAPE) or tensor.get(DTYPE) not in NUMBERS:
        return None
    code, field = NUMBERS[tensor[DTYPE]]
    if CONTENT in tensor:
        return float(struct.unpack(code, tensor[CONTENT])[0])
    return _first_number(code, tensor.get(field, b"\0" * 8))


def _first_number(code: str, field: Union[bytes, int]) -> float:
    """Return the first number of a repeated field, packed or not. A negative integer is encoded as
    a 64-bit one."""
    if code in ("<f", "<d"):
        return float(struct.unpack_from(code, field)[0])  # type: ignore[arg-type]
    number = field if isinstance(field, int) else read_varint(field, 0)[0]
    return float(number - (number >> 63 << 64))


def _read_fields(message: bytes) -> Iterator[Tuple[int, Any]]:
    """Yield the number and the content of each field: an integer, or bytes."""
    position = 0
    while position < len(message):
        key, position = read_varint(message, position)
        wire_type = key & 7
        if wire_type == VARINT:
            value, position = read_varint(message, position)
            yield key >> 3, value
            continue
        if wire_type == LENGTH_DELIMITED:
            size, position = read_varint(message, position)
        else:
            size = FIXED_SIZES[wire_type]
        yield key >> 3, message[position : position + size]
        position += size
