"""A log that is rotated while it is told, and told on where an earlier telling was cut off."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.tail import CHUNK, LOST, OLD_BYTES, WITNESS_BYTES, Tail


@pytest.fixture
def log(tmp_path):
    return tmp_path / "worker-0.log"


def tail(log, lines=None, cursor=None):
    return Tail("worker:0", os.fspath(log), lines, cursor)


def rotate(log):
    """As the supervisor does it."""
    log.rename(f"{log}.1")
    log.touch()


def write(log, *lines):
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def told(tail, last=False):
    return [line for lines in tail.read(last) for line in lines]


# Across a rotation


def test_a_rotated_log_goes_on_in_the_new_file(log):
    write(log, 1)
    reader = tail(log)
    assert told(reader) == ["1"]
    write(log, 2)
    rotate(log)
    write(log, 3)
    assert told(reader) == ["2", "3"]
    assert told(reader) == []


def test_between_the_two_files_nothing_is_told_twice(log):
    write(log, 1)
    reader = tail(log)
    told(reader)
    log.rename(f"{log}.1")
    assert told(reader) == []
    write(log, 2)
    assert told(reader) == ["2"]


def test_a_line_may_begin_in_one_file_and_end_in_the_next(log):
    log.write_text("one\nha")
    reader = tail(log)
    assert told(reader) == ["one"]
    rotate(log)
    log.write_text("lf\ntwo\n")
    assert told(reader) == ["half", "two"]


def test_the_older_file_is_told_first(log):
    write(log, 1)
    rotate(log)
    write(log, 2)
    assert told(tail(log)) == ["1", "2"]


def test_a_file_that_is_replaced_while_it_is_told_is_told_to_its_end(log):
    lines = [str(number) for number in range(CHUNK)]
    write(log, *lines)
    rotate(log)
    write(log, "next")
    reading = tail(log).read(False)
    first = next(reading)
    rotate(log)
    write(log, "last")
    assert first + [line for lines in reading for line in lines] == [*lines, "next", "last"]


def test_that_lines_may_be_lost_between_two_looks_is_told_in_their_place(log):
    write(log, 1)
    reader = tail(log)
    told(reader)
    for line in (2, 3, 4):
        rotate(log)
        write(log, line)
    assert told(reader) == [LOST, "3", "4"]


def test_what_was_lost_does_not_glue_two_lines_together(log):
    log.write_text("half a line")
    reader = tail(log)
    told(reader)
    for line in (2, 3):
        rotate(log)
        write(log, line)
    assert told(reader) == ["half a line", LOST, "2", "3"]


def test_a_log_that_was_cut_is_told_from_its_begin(log):
    write(log, 1, 2, 3)
    reader = tail(log)
    told(reader)
    log.write_text("new\n")
    assert told(reader) == ["new"]


def test_a_log_that_appears_late_is_told_whole(log):
    reader = tail(log, lines=0)
    assert told(reader) == []
    write(log, 1)
    assert told(reader) == ["1"]


@pytest.mark.parametrize(
    ("count", "lines"),
    [(0, []), (1, ["4"]), (2, ["3", "4"]), (3, ["2", "3", "4"]), (9, ["1", "2", "3", "4"])],
)
def test_old_lines_are_counted_over_both_files(log, count, lines):
    write(log, 1, 2)
    rotate(log)
    write(log, 3, 4)
    assert told(tail(log, lines=count)) == lines


def test_a_long_newer_file_hides_the_older_one(log):
    write(log, "old")
    rotate(log)
    log.write_text("x" * OLD_BYTES + "\nlast\n")
    assert told(tail(log, lines=3))[-1] == "last"
    assert "old" not in told(tail(log, lines=3))


# Where the telling stands


def test_a_telling_goes_on_where_another_stood(log):
    write(log, 1, 2)
    first = tail(log)
    told(first)
    write(log, 3)
    assert told(tail(log, cursor=first.cursor)) == ["3"]
    assert told(tail(log, lines=1, cursor=first.cursor)) == ["3"]


def test_a_line_that_had_no_end_yet_is_told_whole_by_the_next(log):
    log.write_text("one\nha")
    first = tail(log)
    assert told(first) == ["one"]
    write(log, "lf")
    assert told(tail(log, cursor=first.cursor)) == ["half"]


def test_a_cursor_outlives_one_rotation(log):
    write(log, 1)
    first = tail(log)
    told(first)
    write(log, 2)
    rotate(log)
    write(log, 3)
    assert told(tail(log, cursor=first.cursor)) == ["2", "3"]


def test_a_cursor_from_within_a_chunk_of_two_files_counts_what_was_told(log):
    log.write_text("one\nha")
    first = tail(log)
    told(first)
    rotate(log)
    assert told(first) == []
    log.write_text("lf\n")
    assert told(tail(log, cursor=first.cursor)) == ["half"]


def test_where_the_file_of_a_cursor_is_gone_that_is_told_and_the_oldest_line_there_is(log):
    write(log, 1)
    first = tail(log)
    told(first)
    for line in (2, 3):
        rotate(log)
        write(log, line)
    assert told(tail(log, cursor=first.cursor)) == [LOST, "2", "3"]


def test_a_new_file_that_got_the_inode_of_an_old_one_is_not_taken_for_it(log):
    write(log, "before 1")
    first = tail(log)
    told(first)
    os.truncate(log, 0)  # the same inode, and in the end the same length
    write(log, "after  1", "after  2")
    assert told(tail(log, cursor=first.cursor)) == [LOST, "after  1", "after  2"]


def test_the_cursor_of_a_log_that_was_not_there_is_its_begin(log):
    reader = tail(log, lines=0)
    write(log, 1)
    assert told(tail(log, lines=0, cursor=reader.cursor)) == ["1"]


def test_before_its_first_line_a_cursor_tells_which_old_lines_are_left_out(log):
    write(log, 1, 2)
    reader = tail(log, lines=0)
    write(log, 3)
    assert told(tail(log, lines=0, cursor=reader.cursor)) == ["3"]


def test_a_cursor_far_into_a_log_is_found_again(log):
    write(log, *range(WITNESS_BYTES))
    first = tail(log)
    told(first)
    write(log, "more")
    assert told(tail(log, cursor=first.cursor)) == ["more"]


EVENTS = st.lists(st.sampled_from(["write", "half", "rotate", "look", "cut"]), max_size=30)


@given(EVENTS)
def test_whatever_happens_each_line_is_told_once_and_in_order(tmp_path_factory, events):
    """While there is a look between two rotations."""
    log = tmp_path_factory.mktemp("logs") / "log"
    log.touch()
    reader, heard, written, looked = tail(log), [], 0, True
    for event in [*events, "write", "look"]:
        if event in ("write", "half"):
            written += 1
            text = f"{written}\n"
            with log.open("a") as file:
                file.write(text if event == "write" else text[:-1])
            if event == "half":
                heard += told(reader)
                looked = True
                with log.open("a") as file:
                    file.write("\n")
        elif event == "rotate" and looked:
            rotate(log)
            looked = False
        elif event == "look":
            heard += told(reader)
            looked = True
        elif event == "cut":
            reader = tail(log, cursor=reader.cursor)
    assert heard == [str(number + 1) for number in range(written)]
