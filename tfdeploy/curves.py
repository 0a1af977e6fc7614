"""What a training told about itself: steps, moments and scalars, without TensorFlow.

They are read off event files (source: event.proto of tensorflow/core/util, summary.proto and
tensor.proto of tensorflow/core/framework), or off a log by a pattern with named groups.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdeploy.agent import progress
from tfdeploy.agent.event_files import EVENTS
from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

GROUPS = r"(?P<step>\d+), and as you like (?P<loss>…) or (?P<value>…), and (?P<time>…)"
BESIDE = ",;()[]"  # what \S+ takes in with a number
EVALUATOR = re.compile(r"evaluator-\d+(?=/|$)")  # another task's, on another host's clock
EVALUATION = re.compile(r"(^|/)(eval|validation)")  # as Estimator, Keras and tf_models call theirs
# The fields of the messages that are looked into. Others are passed over.
WALL_TIME, STEP, SUMMARY, VALUE = 1, 2, 5, 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
DTYPE, SHAPE, CONTENT = 1, 2, 4
# DT_FLOAT, DT_DOUBLE, DT_INT32 and DT_INT64: how one is packed, and the field of its own type.
NUMBERS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
VARINT, SIZED, SIZES = 0, 2, {1: 8, 5: 4}  # wire types


class Point(NamedTuple):
    """What was told at a step. `at` is in seconds since the epoch, NaN where no time is known;
    `value` is None where only the step was told."""

    step: int
    at: float
    value: float | None


Curve = tuple[Point, ...]


def of_events(folder: Path) -> dict[str, Curve]:
    """Every scalar of all event files below the folder, by its tag; steps rise in each.

    Where several folders tell one tag, that which tells it most often has the plain name, but an
    evaluation only where nobody else tells it; the others are `eval/loss`. An evaluator's always
    are, as `evaluator-0/eval/loss`. What can't be read is passed over.
    """
    told: dict[str, dict[str, list[Point]]] = {}
    for where, points in sorted(_files(folder), key=lambda file: file[1][0][1].at):
        for tag, point in points:
            told.setdefault(tag, {}).setdefault(where, []).append(point)
    curves: dict[str, Curve] = {}
    for tag, places in sorted(told.items()):
        ordered = sorted(places, key=lambda where: _rank(where, len(places[where])))
        for where in ordered:
            plain = where == ordered[0] and not EVALUATOR.match(where)
            curves[tag if plain else f"{where}/{tag}"] = _onward(places[where])
    return curves


def _rank(where: str, points: int) -> tuple[bool, bool, int, str]:
    return bool(EVALUATOR.match(where)), bool(EVALUATION.search(where)), -points, where


def of_one_clock(curves: Mapping[str, Curve], name: str) -> dict[str, Curve]:
    """The named one, and all others that were told by the same task."""
    return {each: curve for each, curve in curves.items() if _evaluator(each) == _evaluator(name)}


def _evaluator(name: str) -> str:
    found = EVALUATOR.match(name)
    return found.group() if found else ""


def of_log(text: str, pattern: re.Pattern[str]) -> Curve:
    """Each line that the pattern is found in. A time is a number of seconds, or a date and time."""
    found = (pattern.search(line) for line in text.splitlines())
    told = (_said(match.groupdict()) for match in found if match)
    return _onward(point for point in told if point)


def log_pattern(text: str) -> re.Pattern[str]:
    """A pattern as it was typed. Raises RunError where it isn't one that names a step."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise RunError(f'the pattern "{text}" can\'t be read: {error}', f"say {GROUPS}") from None
    if "step" not in pattern.groupindex:
        raise RunError(f'the pattern "{text}" names no step', f"say {GROUPS}")
    return pattern


def steps(curves: Mapping[str, Curve]) -> Curve:
    """When each step was first told, by any of the curves; without values. Steps and times rise."""
    told = sorted((point.at, point.step) for curve in curves.values() for point in curve
                  if math.isfinite(point.at))  # fmt: skip
    found: list[Point] = []
    for at, step in told:
        if not found or step > found[-1].step:
            found.append(Point(step, at, None))
    return tuple(found)


def _onward(points: Iterable[Point]) -> Curve:
    """A training that was begun again tells some steps twice: from where it went on, its second
    word counts."""
    curve: list[Point] = []
    for point in points:
        while curve and curve[-1].step >= point.step:
            curve.pop()
        curve.append(point)
    return tuple(curve)


# Logs


def _said(groups: dict[str, str | None]) -> Point | None:
    """None where what was found is no number, or no time."""
    value = groups.get("value") or groups.get("loss")
    try:
        step, at = int(groups["step"] or ""), _moment(groups.get("time"))
        return Point(step, at, float(value.strip(BESIDE)) if value else None)
    except (ValueError, OverflowError):
        return None


def _moment(text: str | None) -> float:
    if not text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# Event files


def _files(folder: Path) -> Iterator[tuple[str, list[tuple[str, Point]]]]:
    """Of each event file that tells a scalar its folder, and what it tells."""
    for path in sorted(folder.rglob(f"*{EVENTS}*")):
        if path.is_file() and not path.is_symlink():
            points = list(_scalars(path.read_bytes()))
            if points:
                yield path.parent.relative_to(folder).as_posix(), points


def _scalars(data: bytes) -> Iterator[tuple[str, Point]]:
    for event in progress.events(data):
        try:
            yield from list(_points(event))
        except (AttributeError, LookupError, TypeError, ValueError, struct.error):
            continue  # other bytes than an Event's


def _points(event: bytes) -> Iterator[tuple[str, Point]]:
    told = dict(_fields(event))
    step, at = told.get(STEP, 0), struct.unpack("<d", told[WALL_TIME])[0]
    if step >> 63 or not math.isfinite(at):
        return
    summary = _fields(told.get(SUMMARY, b""))
    for value in [dict(_fields(value)) for field, value in summary if field == VALUE]:
        number = _number(value)
        if number is not None:
            yield value[TAG].decode(), Point(step, at, number)


def _number(value: dict[int, Any]) -> float | None:
    """compat.v1 writes a simple_value, TensorFlow 2 a tensor. None for an image and its like."""
    if SIMPLE_VALUE in value:
        return float(struct.unpack("<f", value[SIMPLE_VALUE])[0])
    tensor = dict(_fields(value.get(TENSOR, b"")))
    if tensor.get(SHAPE) or tensor.get(DTYPE) not in NUMBERS:
        return None
    code, field = NUMBERS[tensor[DTYPE]]
    if CONTENT in tensor:
        return float(struct.unpack(code, tensor[CONTENT])[0])
    return _first(code, tensor.get(field, b"\0" * 8))


def _first(code: str, numbers: bytes | int) -> float:
    """Of a repeated field, packed or not. Negative integers are told as of 64 bits."""
    if code in ("<f", "<d"):
        return float(struct.unpack_from(code, numbers)[0])  # type: ignore[arg-type]
    number = numbers if isinstance(numbers, int) else _varint(numbers, 0)[0]
    return float(number - (number >> 63 << 64))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The number of each field, and what it holds: an integer, or bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        value, place = _varint(message, place) if kind in (VARINT, SIZED) else (SIZES[kind], place)
        if kind == VARINT:
            yield key >> 3, value
        else:
            yield key >> 3, message[place : place + value]
            place += value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer in groups of seven bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("more than ten bytes")
