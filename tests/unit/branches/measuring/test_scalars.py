"""Scalars are read from event files and logs: complete, cut and hostile ones."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import (
    NAME,
    VERSION,
    event,
    field,
    record,
    scalar_event,
    simple_value,
    varint,
    write,
)

from tfdeploy.branches.measuring import scalars
from tfdeploy.branches.measuring.scalars import Point
from tfdeploy.shared.event_scalars import read_scalars

FLOAT, DOUBLE, INT32, UINT8, STRING, INT64 = 1, 2, 3, 4, 7, 9


def tensor(dtype, *values, shape=b""):
    """Return a scalar as TensorFlow 2 writes it."""
    return field(8, field(1, dtype) + field(2, shape) + b"".join(values))


def losses(*points, at=0.0):
    """Return records of losses at these (step, value), one second apart."""
    return [record(scalar_event(s, at + n, loss=v)) for n, (s, v) in enumerate(points)]


def steps_and_values(series):
    return [(point.step, point.value) for point in series]


# Scalars in event files


def test_each_scalar_is_read_by_its_tag_with_step_and_time(tmp_path):
    first = record(scalar_event(0, 100.0, loss=2.5, accuracy=0.25))
    write(
        tmp_path, record(event(0, 99.0, VERSION)), first, record(scalar_event(7, 101.5, loss=1.5))
    )
    assert scalars.read_events(tmp_path) == {
        "accuracy": (Point(0, 100.0, 0.25),),
        "loss": (Point(0, 100.0, 2.5), Point(7, 101.5, 1.5)),
    }


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (tensor(FLOAT, field(4, struct.pack("<f", 0.5))), 0.5),
        (tensor(DOUBLE, field(4, struct.pack("<d", 0.1))), 0.1),
        (tensor(INT32, field(4, struct.pack("<i", -3))), -3.0),
        (tensor(INT64, field(4, struct.pack("<q", 2**40))), 2.0**40),
        (tensor(FLOAT, field(5, struct.pack("<f", 0.5))), 0.5),
        (tensor(FLOAT, varint(5 << 3 | 5) + struct.pack("<f", 0.5)), 0.5),
        (tensor(DOUBLE, field(6, struct.pack("<d", 1e300))), 1e300),
        (tensor(DOUBLE, varint(6 << 3 | 1) + struct.pack("<d", 0.1)), 0.1),
        (tensor(INT32, field(7, varint(300))), 300.0),
        (tensor(INT32, field(7, 300)), 300.0),
        (tensor(INT64, field(10, varint(2**64 - 5))), -5.0),
        (tensor(INT64), 0.0),
        (tensor(FLOAT), 0.0),
        (tensor(DOUBLE), 0.0),
        (simple_value(0.0), 0.0),
        (simple_value(-math.inf), -math.inf),
    ],
)
def test_every_form_of_a_scalar_is_read(tmp_path, value, number):
    write(tmp_path, record(scalar_event(3, 1.0, loss=value)))
    assert scalars.read_events(tmp_path) == {"loss": (Point(3, 1.0, number),)}


def test_a_loss_of_nan_is_read_as_nan(tmp_path):
    write(tmp_path, *losses((1, math.nan)))
    [point] = scalars.read_events(tmp_path)["loss"]
    assert math.isnan(point.value)


@pytest.mark.parametrize(
    "value",
    [
        tensor(FLOAT, field(4, bytes(8)), shape=field(2, field(1, 2))),
        tensor(STRING, field(8, b"text")),
        tensor(UINT8, field(7, b"\1")),
        field(4, b"an image"),
        b"",
    ],
    ids=["vector", "text", "uint8", "image", "nothing"],
)
def test_values_that_are_no_scalars_are_skipped(tmp_path, value):
    write(tmp_path, record(scalar_event(3, 1.0, other=value, loss=1.0)))
    assert list(scalars.read_events(tmp_path)) == ["loss"]


def test_unknown_fields_are_skipped(tmp_path):
    odd = b"".join([field(90, 7), field(91, b"x"), varint(92 << 3 | 1) + bytes(8)])
    write(
        tmp_path,
        record(event(4, 1.0, odd + scalar_event(0, 0.0, loss=odd + simple_value(0.5))[9:])),
    )
    assert scalars.read_events(tmp_path) == {"loss": (Point(4, 1.0, 0.5),)}


@pytest.mark.parametrize(("step", "at"), [(2**64 - 1, 1.0), (2, math.nan), (2, math.inf)])
def test_a_negative_step_and_a_time_that_is_not_finite_are_skipped(tmp_path, step, at):
    write(tmp_path, *losses((1, 0.5)), record(scalar_event(step, at, loss=1.0)))
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [(1, 0.5)]


# Several files


def test_files_are_ordered_by_time_whatever_their_names(tmp_path):
    write(tmp_path, *losses((1, 1.0), (2, 0.5), at=10.0), name=NAME + ".z")
    write(tmp_path, *losses((3, 0.25), at=20.0), name=NAME + ".a")
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.25),
    ]


def test_after_a_restart_the_values_beyond_the_checkpoint_are_dropped(tmp_path):
    """Even if the restarted training reports other steps."""
    write(tmp_path, *losses((0, 3.0), (10, 2.0), (20, 9.0), (25, 9.0)), name=NAME)
    write(tmp_path, *losses((12, 1.5), (22, 1.0), at=100.0), name=NAME + ".2")
    expected = [(0, 3.0), (10, 2.0), (12, 1.5), (22, 1.0)]
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == expected


def test_a_step_that_is_reported_twice_has_its_later_value(tmp_path):
    write(tmp_path, *losses((1, 1.0), (1, 0.5)))
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [(1, 0.5)]


def test_the_loss_of_an_evaluation_is_separate_from_the_trainings(tmp_path):
    write(tmp_path, *losses((1, 1.0), (2, 0.75), (3, 0.5)))
    write(tmp_path / "eval", *losses((1, 2.0), (3, 1.5)))
    found = scalars.read_events(tmp_path)
    assert steps_and_values(found["loss"]) == [(1, 1.0), (2, 0.75), (3, 0.5)]
    assert steps_and_values(found["eval/loss"]) == [(1, 2.0), (3, 1.5)]


def test_the_folder_that_reports_a_tag_most_often_has_its_plain_name(tmp_path):
    write(tmp_path / "train", *losses((1, 1.0), (2, 0.75)))
    write(tmp_path / "eval", *losses((2, 2.0)))
    found = scalars.read_events(tmp_path)
    assert (steps_and_values(found["loss"]), steps_and_values(found["eval/loss"])) == (
        [(1, 1.0), (2, 0.75)],
        [(2, 2.0)],
    )


@pytest.mark.parametrize("folder", ["eval", "eval_test", "validation", "evaluator-0", "a/eval"])
def test_an_evaluation_never_replaces_the_training(tmp_path, folder):
    write(tmp_path / "train", *losses((1, 1.0)))
    write(tmp_path / folder, *losses((1, 2.0), (2, 2.0)))
    found = scalars.read_events(tmp_path)
    assert (steps_and_values(found["loss"]), len(found[f"{folder}/loss"])) == ([(1, 1.0)], 2)


def test_the_scalars_of_an_evaluator_task_have_another_clock(tmp_path):
    write(tmp_path, *losses((1, 1.0)))
    write(tmp_path / "eval", *losses((1, 2.0)))
    for folder in ("evaluator-0", "evaluator-0/deep", "evaluator-1"):
        write(tmp_path / folder, record(scalar_event(1, 1.0, accuracy=0.5)))
    found = scalars.read_events(tmp_path)
    first = ["evaluator-0/accuracy", "evaluator-0/deep/accuracy"]
    assert sorted(found) == ["eval/loss", *first, "evaluator-1/accuracy", "loss"]
    assert sorted(scalars.of_same_clock(found, "loss")) == ["eval/loss", "loss"]
    assert sorted(scalars.of_same_clock(found, "evaluator-0/accuracy")) == first


def test_a_tag_of_a_single_folder_has_no_folder_in_its_name(tmp_path):
    write(tmp_path / "logs" / "train", *losses((1, 1.0)))
    assert list(scalars.read_events(tmp_path)) == ["loss"]


def test_without_event_files_there_are_no_scalars(tmp_path):
    write(tmp_path, record(event(0, 99.0, VERSION)))
    write(tmp_path, *losses((1, 1.0)), name="model.ckpt-5.index")
    (tmp_path / f"{NAME}.d").mkdir()
    (tmp_path / f"{NAME}.link").symlink_to(tmp_path / "model.ckpt-5.index")
    assert scalars.read_events(tmp_path) == scalars.read_events(tmp_path / "missing") == {}


# Cut and hostile files


def test_the_records_before_a_cut_tail_are_read(tmp_path):
    whole, last = b"".join(losses((1, 1.0), (2, 0.5))), losses((3, 0.25))[0]
    for length in range(len(last)):
        write(tmp_path, whole, last[:length])
        assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [(1, 1.0), (2, 0.5)]


def test_the_records_behind_garbage_are_read(tmp_path):
    write(tmp_path, *losses((1, 1.0)), b"\x09garbage" * 100, *losses((2, 0.5)))
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [(1, 1.0), (2, 0.5)]


@given(junk=st.binary(max_size=60))
def test_an_event_of_any_bytes_is_read_or_skipped(junk):
    records = [record(event(5, 1.0, junk)), record(event(6, 1.0, field(5, field(1, junk))))]
    found = list(read_scalars(b"".join(records) + losses((7, 0.5))[0]))
    assert found[-1] == ("loss", Point(7, 0.0, 0.5))


@given(junk=st.binary(max_size=30), dtype=st.sampled_from([FLOAT, DOUBLE, INT32, INT64]))
def test_a_tensor_of_any_bytes_is_read_or_skipped(junk, dtype):
    odd = [tensor(dtype, junk), *(tensor(dtype, field(place, junk)) for place in (4, 5, 6, 7, 10))]
    data = b"".join(record(scalar_event(1, 1.0, odd=value)) for value in odd)
    assert all(isinstance(point.value, float) for _, point in read_scalars(data))


def test_a_tag_that_is_a_number_is_skipped(tmp_path):
    odd = event(1, 1.0, field(5, field(1, field(1, 7) + simple_value(1.0))))
    write(tmp_path, record(odd), *losses((2, 0.5)))
    assert steps_and_values(scalars.read_events(tmp_path)["loss"]) == [(2, 0.5)]


def test_a_number_that_never_ends_is_skipped():
    assert list(read_scalars(record(event(0, 1.0, b"\x28" + b"\xff" * 1_000_000)))) == []


# The times of steps


def test_step_times_come_from_all_tags_together(tmp_path):
    others = [
        record(scalar_event(2, 100.5, accuracy=0.5)),
        record(scalar_event(3, 103.0, accuracy=0.5)),
    ]
    write(tmp_path, *losses((1, 1.0), (2, 0.5), at=100.0), *others)
    found = scalars.step_times(scalars.read_events(tmp_path))
    assert found == (Point(1, 100.0, None), Point(2, 100.5, None), Point(3, 103.0, None))


def test_a_tag_that_counts_epochs_hides_no_steps():
    batches = tuple(Point(step, float(step), 1.0) for step in (10, 20, 30))
    epochs = (Point(1, 15.0, 1.0), Point(2, 25.0, 1.0))
    assert [point.step for point in scalars.step_times({"a": batches, "b": epochs})] == [10, 20, 30]


def test_without_times_there_are_no_step_times():
    assert scalars.step_times({"log": (Point(1, math.nan, 1.0),)}) == scalars.step_times({}) == ()
