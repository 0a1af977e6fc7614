"""Curves, read off event files and logs: written here byte by byte, cut, hostile, and by
TensorFlow."""

from __future__ import annotations

import math
import os
import re
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy import curves
from tfdeploy.curves import Point
from tfdeploy.errors import RunError
from unit.test_progress import NAME, VERSION, event, record, varint, write

FLOAT, DOUBLE, INT32, UINT8, STRING, INT64 = 1, 2, 3, 4, 7, 9


def field(number, content):
    """A field of a protobuf message: an integer, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def simple(number):
    """As compat.v1 tells a scalar: a float, bare."""
    return varint(2 << 3 | 5) + struct.pack("<f", number)


def tensor(dtype, *values, shape=b""):
    """As TensorFlow 2 tells one."""
    return field(8, field(1, dtype) + field(2, shape) + b"".join(values))


def scalars(step, at, **told):
    """An event that tells values by their tags; a number is told as compat.v1 does."""
    values = b"".join(
        field(1, field(1, tag.encode()) + (v if isinstance(v, bytes) else simple(v)))
        for tag, v in told.items()
    )
    return event(step, at, field(5, values))


def losses(*told, at=0.0):
    """Records of losses at these (step, value), one second apart."""
    return [record(scalars(s, at + n, loss=v)) for n, (s, v) in enumerate(told)]


def told(curve):
    return [(point.step, point.value) for point in curve]


# What is read


def test_each_scalar_is_read_by_its_tag_with_step_and_moment(tmp_path):
    first = record(scalars(0, 100.0, loss=2.5, accuracy=0.25))
    write(tmp_path, record(event(0, 99.0, VERSION)), first, record(scalars(7, 101.5, loss=1.5)))
    assert curves.of_events(tmp_path) == {
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
        (simple(0.0), 0.0),
        (simple(-math.inf), -math.inf),
    ],
)
def test_every_form_of_a_scalar_is_read(tmp_path, value, number):
    write(tmp_path, record(scalars(3, 1.0, loss=value)))
    assert curves.of_events(tmp_path) == {"loss": (Point(3, 1.0, number),)}


def test_a_loss_that_is_no_number_is_told_as_such(tmp_path):
    write(tmp_path, *losses((1, math.nan)))
    [point] = curves.of_events(tmp_path)["loss"]
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
def test_what_is_no_scalar_is_passed_over(tmp_path, value):
    write(tmp_path, record(scalars(3, 1.0, other=value, loss=1.0)))
    assert list(curves.of_events(tmp_path)) == ["loss"]


def test_fields_that_nobody_knows_are_passed_over(tmp_path):
    odd = b"".join([field(90, 7), field(91, b"x"), varint(92 << 3 | 1) + bytes(8)])
    write(tmp_path, record(event(4, 1.0, odd + scalars(0, 0.0, loss=odd + simple(0.5))[9:])))
    assert curves.of_events(tmp_path) == {"loss": (Point(4, 1.0, 0.5),)}


@pytest.mark.parametrize(("step", "at"), [(2**64 - 1, 1.0), (2, math.nan), (2, math.inf)])
def test_a_negative_step_and_a_moment_that_is_none_are_passed_over(tmp_path, step, at):
    write(tmp_path, *losses((1, 0.5)), record(scalars(step, at, loss=1.0)))
    assert told(curves.of_events(tmp_path)["loss"]) == [(1, 0.5)]


# Several files


def test_files_follow_each_other_in_time_whatever_their_names(tmp_path):
    write(tmp_path, *losses((1, 1.0), (2, 0.5), at=10.0), name=NAME + ".z")
    write(tmp_path, *losses((3, 0.25), at=20.0), name=NAME + ".a")
    assert told(curves.of_events(tmp_path)["loss"]) == [(1, 1.0), (2, 0.5), (3, 0.25)]


def test_after_a_restart_the_second_word_counts(tmp_path):
    """What was told beyond the checkpoint is gone, though the second life tells other steps."""
    write(tmp_path, *losses((0, 3.0), (10, 2.0), (20, 9.0), (25, 9.0)), name=NAME)
    write(tmp_path, *losses((12, 1.5), (22, 1.0), at=100.0), name=NAME + ".2")
    expected = [(0, 3.0), (10, 2.0), (12, 1.5), (22, 1.0)]
    assert told(curves.of_events(tmp_path)["loss"]) == expected


def test_a_step_that_is_told_twice_has_its_later_value(tmp_path):
    write(tmp_path, *losses((1, 1.0), (1, 0.5)))
    assert told(curves.of_events(tmp_path)["loss"]) == [(1, 0.5)]


def test_an_evaluators_loss_is_not_mixed_with_the_trainings(tmp_path):
    write(tmp_path, *losses((1, 1.0), (2, 0.75), (3, 0.5)))
    write(tmp_path / "eval", *losses((1, 2.0), (3, 1.5)))
    found = curves.of_events(tmp_path)
    assert told(found["loss"]) == [(1, 1.0), (2, 0.75), (3, 0.5)]
    assert told(found["eval/loss"]) == [(1, 2.0), (3, 1.5)]


def test_whoever_tells_a_tag_most_often_has_its_plain_name(tmp_path):
    write(tmp_path / "train", *losses((1, 1.0), (2, 0.75)))
    write(tmp_path / "eval", *losses((2, 2.0)))
    found = curves.of_events(tmp_path)
    assert (told(found["loss"]), told(found["eval/loss"])) == ([(1, 1.0), (2, 0.75)], [(2, 2.0)])


@pytest.mark.parametrize("folder", ["eval", "eval_test", "validation", "evaluator-0", "a/eval"])
def test_an_evaluation_never_stands_for_the_training(tmp_path, folder):
    write(tmp_path / "train", *losses((1, 1.0)))
    write(tmp_path / folder, *losses((1, 2.0), (2, 2.0)))
    found = curves.of_events(tmp_path)
    assert (told(found["loss"]), len(found[f"{folder}/loss"])) == ([(1, 1.0)], 2)


def test_what_an_evaluator_tells_is_of_another_clock(tmp_path):
    write(tmp_path, *losses((1, 1.0)))
    write(tmp_path / "eval", *losses((1, 2.0)))
    for folder in ("evaluator-0", "evaluator-0/deep", "evaluator-1"):
        write(tmp_path / folder, record(scalars(1, 1.0, accuracy=0.5)))
    found = curves.of_events(tmp_path)
    first = ["evaluator-0/accuracy", "evaluator-0/deep/accuracy"]
    assert sorted(found) == ["eval/loss", *first, "evaluator-1/accuracy", "loss"]
    assert sorted(curves.of_one_clock(found, "loss")) == ["eval/loss", "loss"]
    assert sorted(curves.of_one_clock(found, "evaluator-0/accuracy")) == first


def test_a_tag_that_one_folder_tells_has_no_folder_in_its_name(tmp_path):
    write(tmp_path / "logs" / "train", *losses((1, 1.0)))
    assert list(curves.of_events(tmp_path)) == ["loss"]


def test_where_there_is_nothing_nothing_is_told(tmp_path):
    write(tmp_path, record(event(0, 99.0, VERSION)))
    write(tmp_path, *losses((1, 1.0)), name="model.ckpt-5.index")
    (tmp_path / f"{NAME}.d").mkdir()
    (tmp_path / f"{NAME}.link").symlink_to(tmp_path / "model.ckpt-5.index")
    assert curves.of_events(tmp_path) == curves.of_events(tmp_path / "missing") == {}


# Cut, hostile


def test_a_cut_tail_hides_nothing_before_it(tmp_path):
    whole, last = b"".join(losses((1, 1.0), (2, 0.5))), losses((3, 0.25))[0]
    for length in range(len(last)):
        write(tmp_path, whole, last[:length])
        assert told(curves.of_events(tmp_path)["loss"]) == [(1, 1.0), (2, 0.5)]


def test_garbage_hides_nothing_behind_it(tmp_path):
    write(tmp_path, *losses((1, 1.0)), b"\x09garbage" * 100, *losses((2, 0.5)))
    assert told(curves.of_events(tmp_path)["loss"]) == [(1, 1.0), (2, 0.5)]


@given(junk=st.binary(max_size=60))
def test_an_event_of_any_bytes_is_read_or_passed_over(junk):
    records = [record(event(5, 1.0, junk)), record(event(6, 1.0, field(5, field(1, junk))))]
    found = list(curves._scalars(b"".join(records) + losses((7, 0.5))[0]))
    assert found[-1] == ("loss", Point(7, 0.0, 0.5))


@given(junk=st.binary(max_size=30), dtype=st.sampled_from([FLOAT, DOUBLE, INT32, INT64]))
def test_a_tensor_of_any_bytes_is_read_or_passed_over(junk, dtype):
    odd = [tensor(dtype, junk), *(tensor(dtype, field(place, junk)) for place in (4, 5, 6, 7, 10))]
    data = b"".join(record(scalars(1, 1.0, odd=value)) for value in odd)
    assert all(isinstance(point.value, float) for _, point in curves._scalars(data))


def test_a_tag_that_is_a_number_is_passed_over(tmp_path):
    odd = event(1, 1.0, field(5, field(1, field(1, 7) + simple(1.0))))
    write(tmp_path, record(odd), *losses((2, 0.5)))
    assert told(curves.of_events(tmp_path)["loss"]) == [(2, 0.5)]


def test_a_number_that_never_ends_is_given_up():
    assert list(curves._scalars(record(event(0, 1.0, b"\x28" + b"\xff" * 1_000_000)))) == []


# Steps against time


def test_steps_are_told_by_all_tags_together(tmp_path):
    others = [record(scalars(2, 100.5, accuracy=0.5)), record(scalars(3, 103.0, accuracy=0.5))]
    write(tmp_path, *losses((1, 1.0), (2, 0.5), at=100.0), *others)
    found = curves.steps(curves.of_events(tmp_path))
    assert found == (Point(1, 100.0, None), Point(2, 100.5, None), Point(3, 103.0, None))


def test_a_tag_that_counts_epochs_takes_no_steps_away():
    batches = tuple(Point(step, float(step), 1.0) for step in (10, 20, 30))
    epochs = (Point(1, 15.0, 1.0), Point(2, 25.0, 1.0))
    assert [point.step for point in curves.steps({"a": batches, "b": epochs})] == [10, 20, 30]


def test_without_times_there_are_no_steps_against_time():
    assert curves.steps({"log": (Point(1, math.nan, 1.0),)}) == curves.steps({}) == ()


# Logs

LINE = re.compile(r"step (?P<step>\d+) loss (?P<loss>\S+)")


def test_a_log_is_read_by_a_pattern():
    text = "begin\nstep 10 loss 2.5\nINFO step 20 loss 1e-1, well\nstep x loss 3\n"
    found = curves.of_log(text, LINE)
    assert told(found) == [(10, 2.5), (20, 0.1)]
    assert all(math.isnan(point.at) for point in found)


def test_a_progress_bar_rewrites_its_line():
    assert told(curves.of_log("step 1 loss 3\rstep 2 loss 2\r\n", LINE)) == [(1, 3.0), (2, 2.0)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("12.5", "15.0"),
        ("2026-11-21 18:30:14,500", "2026-11-21 18:30:17,000"),
        ("2026-11-21T18:30:14.5Z", "2026-11-21T19:30:17+01:00"),
    ],
)
def test_a_log_may_tell_the_time(first, second):
    pattern = re.compile(r"^\[(?P<time>[^]]+)\] (?P<step>\d+) (?P<value>\S+)")
    one, two = curves.of_log(f"[{first}] 1 0.5\n[{second}] 2 0.25", pattern)
    assert (one.step, one.value, two.step, two.value) == (1, 0.5, 2, 0.25)
    assert two.at - one.at == pytest.approx(2.5)


def test_a_time_without_a_zone_is_the_same_wherever_it_is_read(monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        [point] = curves.of_log("1970-01-01 00:01 7", re.compile(r"(?P<time>.*) (?P<step>\d+)"))
    time.tzset()
    assert point.at == 60.0


def test_a_log_may_tell_the_step_alone():
    assert curves.of_log("at 7\nat 8", re.compile(r"at (?P<step>\d+)"))[1].value is None


def test_a_log_that_goes_on_after_a_restart_is_read_as_event_files_are():
    text = "step 1 loss 3\nstep 9 loss 9\nstep 5 loss 2\n"
    assert told(curves.of_log(text, LINE)) == [(1, 3.0), (5, 2.0)]


@pytest.mark.parametrize("line", ["step 1 loss ?", "step 1 loss -", "step 1 loss 1,5"])
def test_what_is_no_number_is_no_point(line):
    assert curves.of_log(line, LINE) == ()


@pytest.mark.parametrize("line", ["[noon] 1", "[99:99] 1", "[1] 1x"])
def test_what_is_no_time_and_no_step_is_no_point(line):
    assert curves.of_log(line, re.compile(r"\[(?P<time>.*)\] (?P<step>.*)")) == ()


def test_a_pattern_is_checked_before_it_is_used():
    assert curves.log_pattern(r"step (?P<step>\d+)").search("step 7")["step"] == "7"
    with pytest.raises(RunError, match='"step" names no step'):
        curves.log_pattern("step")
    with pytest.raises(RunError, match=r"\"\(\" can't be read: missing \)"):
        curves.log_pattern("(")


# TensorFlow's own


@pytest.mark.slow
def test_what_tensorflow_2_writes_is_read(tmp_path):
    """With the metadata that tf.summary.scalar gives, for which one needs TensorBoard."""
    tf = pytest.importorskip("tensorflow")
    described = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
    with tf.summary.create_file_writer(os.fspath(tmp_path / "train")).as_default():
        for step in (0, 5, 300):
            tf.summary.write("loss", 1.0 / (step + 1), step=step, metadata=described)
            tf.summary.write("count", tf.constant(-step, tf.int64), step=step)
            tf.summary.write("small", tf.constant(step, tf.int32), step=step)
            tf.summary.write("exact", tf.constant(0.1, tf.float64), step=step)
            tf.summary.write("weights", tf.zeros([3]), step=step)
            tf.summary.write("words", "text", step=step)
    found = curves.of_events(tmp_path)
    assert sorted(found) == ["count", "exact", "loss", "small"]
    assert told(found["loss"]) == [(s, pytest.approx(1 / (s + 1), rel=1e-6)) for s in (0, 5, 300)]
    assert told(found["count"]) == [(0, 0.0), (5, -5.0), (300, -300.0)]
    assert told(found["small"]) == [(0, 0.0), (5, 5.0), (300, 300.0)]
    assert told(found["exact"]) == [(0, 0.1), (5, 0.1), (300, 0.1)]


@pytest.mark.slow
def test_what_a_monitored_session_writes_before_and_after_a_restart_is_read(tmp_path):
    tf1 = pytest.importorskip("tensorflow").compat.v1
    for last in (10, 20):
        with tf1.Graph().as_default():
            counted = tf1.train.get_or_create_global_step().assign_add(1)
            tf1.summary.scalar("half", tf1.cast(counted, tf1.float32) / 2)
            with tf1.train.MonitoredTrainingSession(
                checkpoint_dir=os.fspath(tmp_path), save_summaries_steps=1,
                hooks=[tf1.train.StopAtStepHook(last_step=last)], log_step_count_steps=5,
            ) as session:  # fmt: skip
                while not session.should_stop():
                    session.run(counted)
    found = curves.of_events(tmp_path)
    assert sorted(found) == ["global_step/sec", "half"]
    assert {s for s, _ in told(found["half"])} >= {*range(2, 20)}
    assert all(value in (s / 2, (s - 1) / 2) for s, value in told(found["half"]))
    ats = [point.at for point in curves.steps(found)]
    assert ats == sorted(ats)
    assert ats[-1] - ats[0] < 300
