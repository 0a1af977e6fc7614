"""Read steps, times and scalars that a training reported, without TensorFlow.

They come from event files. Source: event.proto of tensorflow/core/util, summary.proto and
tensor.proto of tensorflow/core/framework.
"""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdeploy.own_folder import read_file
from tfdeploy.shared.event_records import EVENTS, events, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

MAX_FILE_BYTES = 4 << 30
EVALUATOR = re.compile(r"evaluator-\d+(?=/|$)")  # another task, on another host's clock
# The folders of Estimator, Keras and tf_models, and of loops by hand.
EVALUATION = re.compile(r"(^|/)(eval|validation|(val|test)(?=[/_]|$))")
PART = re.compile(r"^(?:.*/)?(?:eval[^/]*/|validation[^/]*/|(?:val|test|train)(?:/|_))")
SPEED = "global_step/sec"  # compat.v1's sessions write it by themselves
DEFAULT_WINDOWS = 20  # by default the running mean is over this part of the longest run
# The fields that are read. Others are skipped.
WALL_TIME, STEP, SUMMARY, VALUE = 1, 2, 5, 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
DTYPE, SHAPE, CONTENT = 1, 2, 4
# DT_FLOAT, DT_DOUBLE, DT_INT32 and DT_INT64: the struct code, and the field for values of the type.
NUMBERS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
VARINT, LENGTH_DELIMITED, FIXED_SIZES = 0, 2, {1: 8, 5: 4}  # wire types


class Point(NamedTuple):
    """What was reported for a step. `time_s` is in seconds since the epoch, NaN if unknown; `value`
    is None if only the step was reported."""

    step: int
    time_s: float
    value: float | None


Series = tuple[Point, ...]
"""The points of one scalar, with rising steps."""


def read_events(folder: Path) -> dict[str, Series]:
    """Return every scalar of all event files below the folder, by its name.

    The name is the tag alone for the folder that reports the tag most often; an evaluation's folder
    gets it only if no other folder reports the tag. For all other folders the name begins with the
    folder, such as `eval/loss`, and for evaluator tasks always, such as `evaluator-0/eval/loss`.
    Files and events that can't be read are skipped.
    """
    tags: dict[str, dict[str, list[Point]]] = {}
    for file_folder, points in sorted(_read_files(folder), key=lambda file: file[1][0][1].time_s):
        for tag, point in points:
            tags.setdefault(tag, {}).setdefault(file_folder, []).append(point)
    scalars: dict[str, Series] = {}
    for tag, folders in sorted(tags.items()):
        ordered = sorted(folders, key=lambda name: _folder_rank(name, len(folders[name])))
        for name in ordered:
            is_plain = name == ordered[0] and not EVALUATOR.match(name)
            scalars[tag if is_plain else f"{name}/{tag}"] = _with_rising_steps(folders[name])
    return scalars


def _folder_rank(folder: str, points: int) -> tuple[bool, bool, int, str]:
    return bool(EVALUATOR.match(folder)), bool(EVALUATION.search(folder)), -points, folder


def is_validation(name: str) -> bool:
    """Return whether a scalar, by its name, is one of a validation, not of the training."""
    return bool(EVALUATOR.match(name) or EVALUATION.search(name))


def metric_name(name: str) -> str:
    """Return what is measured: the scalar's name without what says by whom, such as `epoch_loss`
    for `validation/epoch_loss`, and `loss` for `train/loss` and `val_loss`."""
    return PART.sub("", EVALUATOR.sub("", name).lstrip("/"))


def of_same_clock(scalars: Mapping[str, Series], name: str) -> dict[str, Series]:
    """Return the named scalar, and all others that the same task reported."""
    task = _evaluator_task(name)
    return {other: series for other, series in scalars.items() if _evaluator_task(other) == task}


def _evaluator_task(name: str) -> str:
    match = EVALUATOR.match(name)
    return match.group() if match else ""


def step_times(scalars: Mapping[str, Series]) -> Series:
    """Return when each step was first reported, by any of the scalars. The points have no values;
    their steps and times rise."""
    reports = sorted((point.time_s, point.step) for series in scalars.values() for point in series
                     if math.isfinite(point.time_s))  # fmt: skip
    points: list[Point] = []
    for time_s, step in reports:
        if not points or step > points[-1].step:
            points.append(Point(step, time_s, None))
    return tuple(points)


def _with_rising_steps(points: Iterable[Point]) -> Series:
    """Drop what a restarted training had reported after the checkpoint from which it continued."""
    series: list[Point] = []
    for point in points:
        while series and series[-1].step >= point.step:
            series.pop()
        series.append(point)
    return tuple(series)


def values_of(series: Series) -> tuple[float, ...]:
    """Return the values, NaN for none."""
    return tuple(math.nan if point.value is None else point.value for point in series)


def window_of(series: Series) -> int:
    """Return the steps of the default running mean."""
    return max(1, (series[-1].step - series[0].step) // DEFAULT_WINDOWS)


def smooth_series(series: Series, steps: int) -> tuple[float, ...]:
    """Return, for each point, the mean of the values in the last `steps` steps. NaN and infinity
    make the means of their window NaN.

    The sums are exact fractions: with floats, one huge loss would distort every later mean.
    """
    numbers = [Fraction(value) if math.isfinite(value) else None for value in values_of(series)]
    sums = list(accumulate((number or Fraction() for number in numbers), initial=Fraction()))
    odd_counts = list(accumulate((number is None for number in numbers), initial=0))
    begin, means = 0, []
    for end, point in enumerate(series, 1):
        while series[begin].step <= point.step - steps:
            begin += 1
        mean = float((sums[end] - sums[begin]) / (end - begin))
        means.append(math.nan if odd_counts[end] > odd_counts[begin] else mean)
    return tuple(means)


def _read_files(folder: Path) -> Iterator[tuple[str, list[tuple[str, Point]]]]:
    """Yield the relative folder of each event file that has scalars, and its (tag, point) pairs."""
    for path in sorted(folder.rglob(f"*{EVENTS}*")):
        if path.is_file() and not path.is_symlink():
            points = list(_read_scalars(read_file(path, MAX_FILE_BYTES)))
            if points:
                yield path.parent.relative_to(folder).as_posix(), points


def _read_scalars(data: bytes) -> Iterator[tuple[str, Point]]:
    for event in events(data):
        try:
            yield from list(_read_event(event))
        except (AttributeError, LookupError, TypeError, ValueError, struct.error):
            continue  # these bytes are not an Event


def _read_event(event: bytes) -> Iterator[tuple[str, Point]]:
    fields = dict(_read_fields(event))
    step, time_s = fields.get(STEP, 0), struct.unpack("<d", fields[WALL_TIME])[0]
    if step >> 63 or not math.isfinite(time_s):  # a negative step
        return
    summary = _read_fields(fields.get(SUMMARY, b""))
    for value in [dict(_read_fields(content)) for field, content in summary if field == VALUE]:
        number = _read_number(value)
        if number is not None:
            yield value[TAG].decode(), Point(step, time_s, number)


def _read_number(value: dict[int, Any]) -> float | None:
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


def _first_number(code: str, field: bytes | int) -> float:
    """Return the first number of a repeated field, packed or not. A negative integer is encoded as
    a 64-bit one."""
    if code in ("<f", "<d"):
        return float(struct.unpack_from(code, field)[0])  # type: ignore[arg-type]
    number = field if isinstance(field, int) else read_varint(field, 0)[0]
    return float(number - (number >> 63 << 64))


def _read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
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
