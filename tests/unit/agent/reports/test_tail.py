"""A log is read completely across rotations, and from the cursor of an earlier reader."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.reports import tail as tails
from tfdeploy.agent.reports.tail import (
    CHUNK,
    FINGERPRINT_BYTES,
    HISTORY_BYTES,
    LINES_LOST,
    Tail,
)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "worker-0.log"


def tail(log, lines=None, cursor=None):
    return Tail("worker:0", os.fspath(log), lines, cursor)


def rotate(log):
    """Rotate the log as the supervisor does."""
    log.rename(f"{log}.1")
    log.touch()


def write(log, *lines):
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def append(log, text):
    with log.open("a") as file:
        file.write(text)


def read_lines(tail, last=False):
    return [line for lines in tail.read(last) for line in lines]


# Across a rotation


def test_reading_continues_in_the_new_file_after_a_rotation(log):
    write(log, 1)
    reader = tail(log)
    assert read_lines(reader) == ["1"]
    write(log, 2)
    rotate(log)
    write(log, 3)
    assert read_lines(reader) == ["2", "3"]
    assert read_lines(reader) == []


def test_no_line_is_read_twice_between_the_rename_and_the_new_file(log):
    write(log, 1)
    reader = tail(log)
    read_lines(reader)
    log.rename(f"{log}.1")
    assert read_lines(reader) == []
    write(log, 2)
    assert read_lines(reader) == ["2"]


def test_a_line_may_start_in_one_file_and_end_in_the_next(log):
    log.write_text("one\nha")
    reader = tail(log)
    assert read_lines(reader) == ["one"]
    rotate(log)
    log.write_text("lf\ntwo\n")
    assert read_lines(reader) == ["half", "two"]


def test_the_older_file_is_read_first(log):
    write(log, 1)
    rotate(log)
    write(log, 2)
    assert read_lines(tail(log)) == ["1", "2"]


def test_a_file_that_is_rotated_while_it_is_read_is_read_to_its_end(log):
    lines = [str(number) for number in range(CHUNK)]
    write(log, *lines)
    rotate(log)
    write(log, "next")
    reading = tail(log).read(False)
    first = next(reading)
    rotate(log)
    write(log, "last")
    assert first + [line for lines in reading for line in lines] == [*lines, "next", "last"]


def test_lost_lines_are_reported_in_their_place(log):
    write(log, 1)
    reader = tail(log)
    read_lines(reader)
    for line in (2, 3, 4):
        rotate(log)
        write(log, line)
    assert read_lines(reader) == [LINES_LOST, "3", "4"]


def test_a_partial_line_is_ended_before_lost_lines_are_reported(log):
    log.write_text("half a line")
    reader = tail(log)
    read_lines(reader)
    for line in (2, 3):
        rotate(log)
        write(log, line)
    assert read_lines(reader) == ["half a line", LINES_LOST, "2", "3"]


def test_a_truncated_log_is_read_from_its_start(log):
    write(log, 1, 2, 3)
    reader = tail(log)
    read_lines(reader)
    log.write_text("new\n")
    assert read_lines(reader) == ["new"]


def test_a_log_that_appears_later_is_read_completely(log):
    reader = tail(log, lines=0)
    assert read_lines(reader) == []
    write(log, 1)
    assert read_lines(reader) == ["1"]


@pytest.mark.parametrize(
    ("count", "lines"),
    [(0, []), (1, ["4"]), (2, ["3", "4"]), (3, ["2", "3", "4"]), (9, ["1", "2", "3", "4"])],
)
def test_old_lines_are_counted_across_both_files(log, count, lines):
    write(log, 1, 2)
    rotate(log)
    write(log, 3, 4)
    assert read_lines(tail(log, lines=count)) == lines


def test_the_updates_of_a_progress_bar_are_one_line(log):
    log.write_text("1\n2\n 1/9\r 5/9\r 9/9\n")
    assert read_lines(tail(log, lines=2)) == ["2", " 1/9\r 5/9\r 9/9"]


def test_a_progress_bar_without_newline_is_reported_from_time_to_time(log, monkeypatch):
    reader = tail(log)
    append(log, "1\n 1/9\r 2/9\b\r 3/")
    assert read_lines(reader) == ["1"]
    assert read_lines(reader) == []
    monkeypatch.setattr(tails, "PROGRESS_BAR_S", 0.0)
    assert read_lines(reader) == [" 1/9\r 2/9\b\r"]
    append(log, "9\r 9/9\n")
    assert read_lines(tail(log, cursor=reader.cursor)) == [" 3/9\r 9/9"]
    assert read_lines(reader) == [" 3/9\r 9/9"]


def test_the_last_lines_are_found_however_long_they_are(log):
    write(log, "old")
    rotate(log)
    long = "x" * 5 * HISTORY_BYTES
    log.write_text(f"{long}\nlast\n")
    assert read_lines(tail(log, lines=2)) == [long, "last"]
    assert read_lines(tail(log, lines=3)) == ["old", long, "last"]


def test_a_reader_may_limit_how_far_back_old_lines_are_searched(log):
    write(log, "old")
    rotate(log)
    log.write_text("x" * HISTORY_BYTES + "\nlast\n")
    reader = Tail("worker:0", os.fspath(log), 3, history_bytes=HISTORY_BYTES)
    assert read_lines(reader)[-1] == "last"
    assert "old" not in read_lines(Tail("w", os.fspath(log), 3, history_bytes=HISTORY_BYTES))


# Cursors


def test_a_reader_continues_at_the_cursor_of_another(log):
    write(log, 1, 2)
    first = tail(log)
    read_lines(first)
    write(log, 3)
    assert read_lines(tail(log, cursor=first.cursor)) == ["3"]
    assert read_lines(tail(log, lines=1, cursor=first.cursor)) == ["3"]


def test_a_partial_line_is_read_completely_by_the_next_reader(log):
    log.write_text("one\nha")
    first = tail(log)
    assert read_lines(first) == ["one"]
    write(log, "lf")
    assert read_lines(tail(log, cursor=first.cursor)) == ["half"]


def test_a_cursor_is_valid_after_one_rotation(log):
    write(log, 1)
    first = tail(log)
    read_lines(first)
    write(log, 2)
    rotate(log)
    write(log, 3)
    assert read_lines(tail(log, cursor=first.cursor)) == ["2", "3"]


def test_a_cursor_excludes_a_partial_line_from_before_a_rotation(log):
    log.write_text("one\nha")
    first = tail(log)
    read_lines(first)
    rotate(log)
    assert read_lines(first) == []
    log.write_text("lf\n")
    assert read_lines(tail(log, cursor=first.cursor)) == ["half"]


def test_reading_restarts_at_the_oldest_line_if_the_file_of_a_cursor_is_gone(log):
    write(log, 1)
    first = tail(log)
    read_lines(first)
    for line in (2, 3):
        rotate(log)
        write(log, line)
    assert read_lines(tail(log, cursor=first.cursor)) == [LINES_LOST, "2", "3"]


def test_a_new_file_with_the_inode_of_an_old_one_is_recognized_as_new(log):
    write(log, "before 1")
    first = tail(log)
    read_lines(first)
    os.truncate(log, 0)  # the same inode, and in the end the same length
    write(log, "after  1", "after  2")
    assert read_lines(tail(log, cursor=first.cursor)) == [LINES_LOST, "after  1", "after  2"]


def test_the_cursor_of_a_missing_log_is_its_start(log):
    reader = tail(log, lines=0)
    write(log, 1)
    assert read_lines(tail(log, lines=0, cursor=reader.cursor)) == ["1"]


def test_a_new_readers_cursor_is_after_the_old_lines_that_it_skips(log):
    write(log, 1, 2)
    reader = tail(log, lines=0)
    write(log, 3)
    assert read_lines(tail(log, lines=0, cursor=reader.cursor)) == ["3"]


def test_a_cursor_far_into_a_log_is_found_again(log):
    write(log, *range(FINGERPRINT_BYTES))
    first = tail(log)
    read_lines(first)
    write(log, "more")
    assert read_lines(tail(log, cursor=first.cursor)) == ["more"]


EVENTS = st.lists(st.sampled_from(["write", "half", "rotate", "read", "reconnect"]), max_size=30)


@given(EVENTS)
def test_each_line_is_read_once_and_in_order_whatever_happens(tmp_path_factory, events):
    """Holds as long as the log is read between two rotations."""
    log = tmp_path_factory.mktemp("logs") / "log"
    log.touch()
    reader, lines, written, read_since_rotation = tail(log), [], 0, True
    for event in [*events, "write", "read"]:
        if event in ("write", "half"):
            written += 1
            text = f"{written}\n"
            with log.open("a") as file:
                file.write(text if event == "write" else text[:-1])
            if event == "half":
                lines += read_lines(reader)
                read_since_rotation = True
                with log.open("a") as file:
                    file.write("\n")
        elif event == "rotate" and read_since_rotation:
            rotate(log)
            read_since_rotation = False
        elif event == "read":
            lines += read_lines(reader)
            read_since_rotation = True
        elif event == "reconnect":
            reader = tail(log, cursor=reader.cursor)
    assert lines == [str(number + 1) for number in range(written)]
