"""A task's log: bounded, complete lines, no gaps, and it never blocks the task."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task_log import FEW_BYTES, PATIENT, SMALL, contents, write
from support.waiting import until

from tfdeploy.agent.supervision.log import TAIL, TaskLog


@pytest.fixture
def log(tmp_path):
    """A log of a few kilobytes."""
    return TaskLog(os.fspath(tmp_path / "ps-0.log"), 2 * SMALL, FEW_BYTES)


def test_everything_written_is_in_the_file(log):
    write(log, b"one\n", b"two", b" and more\n")
    assert contents(log) == [b"", b"one\ntwo and more\n"]


class NotedChunks(TaskLog):
    """A log that notes what its thread has read at once."""

    def __init__(self, *words):
        self.chunks = []
        super().__init__(*words)

    def _append(self, chunk):
        self.chunks.append(chunk)
        super()._append(chunk)


def test_many_small_prints_wake_the_supervisor_once_for_all(tmp_path):
    log = NotedChunks(os.fspath(tmp_path / "ps-0.log"), 2 * SMALL, PATIENT)
    log._collects = True  # even if this user's other pipes leave no room for a large one
    started = time.monotonic()
    for number in range(300):
        os.write(log.descriptor, b"%d\n" % number)
        time.sleep(0.001)
    log.flush()
    assert b"".join(log.chunks) == b"".join(b"%d\n" % number for number in range(300))
    # On a busy machine the prints are further apart, and there are more pauses.
    assert len(log.chunks) <= 3 + (time.monotonic() - started) / PATIENT.collect_s


def test_prints_are_not_collected_in_a_small_pipe(tmp_path):
    # No system allows a pipe of this size.
    buffers = PATIENT._replace(collect_s=30.0, pipe_bytes=(1 << 31) + 1)
    log = TaskLog(os.fspath(tmp_path / "ps-1.log"), 2 * SMALL, buffers)
    started = time.monotonic()
    for _ in range(3):
        write(log, b"line\n")
        log.flush()
    assert time.monotonic() < started + buffers.collect_s / 2
    assert contents(log)[1] == b"line\n" * 3


def test_a_new_log_appends_to_an_earlier_one(tmp_path):
    (tmp_path / "log").write_bytes(b"before\n")
    log = TaskLog(os.fspath(tmp_path / "log"), 1 << 20, PATIENT)
    write(log, b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"


def test_only_the_owner_can_read_a_log(log):
    assert os.stat(log.path).st_mode & 0o077 == 0


def test_the_time_of_the_last_output_is_recorded(log):
    before = log.grew_at
    write(log, b"one\n")
    assert before < log.grew_at <= time.monotonic()


def test_the_tail_has_the_last_output(log):
    write(log, b"first words\n")
    write(log, b"x" * TAIL + b"the last")
    assert log.tail == b"x" * (TAIL - len("the last")) + b"the last"


def test_flush_waits_for_everything_that_was_written(tmp_path):
    log = TaskLog(os.fspath(tmp_path / "log"), 1 << 30, PATIENT)
    data = b"x" * 1023 + b"\n"
    for _ in range(20):
        os.write(log.descriptor, data * 500)
        log.flush()
        assert os.path.getsize(log.path) % (1024 * 500) == 0
    assert os.path.getsize(log.path) == 1024 * 500 * 20


# Rotation. These tests call _append directly: a pipe splits the stream at random places.


LIMIT = 4 * SMALL
LINES = st.lists(st.integers(0, 1500), min_size=20, max_size=80)
CUTS = st.lists(st.integers(1, 700) | st.integers(1, SMALL), min_size=1, max_size=20)


class WithoutThread(TaskLog):
    """A log whose pipe can be closed; a soak would use up all descriptors."""

    def _pump(self):
        pass


def rotate(folder, pieces):
    """Append the pieces one by one, and return the content of the two files."""
    log = WithoutThread(os.fspath(folder / "log"), LIMIT, FEW_BYTES)
    for piece in pieces:
        log._append(piece)
    for descriptor in (log._file, log._source, log.descriptor):
        os.close(descriptor)
    return contents(log)


def split(stream, sizes):
    """Yield the stream in pieces of these sizes, in a cycle."""
    place, nth = 0, 0
    while place < len(stream):
        size = sizes[nth % len(sizes)]
        yield stream[place : place + size]
        place, nth = place + size, nth + 1


@given(LINES, CUTS)
def test_files_have_complete_lines_and_the_newest_output(tmp_path_factory, sizes, cuts):
    stream = b"".join(b"%06d" % n + b"x" * size + b"\n" for n, size in enumerate(sizes))
    old, new = rotate(tmp_path_factory.mktemp("log"), split(stream, cuts))
    assert stream.endswith(old + new)
    assert max(len(old), len(new)) <= LIMIT // 2 + 2 * SMALL
    for content in filter(None, (old, new)):
        assert content[:6].isdigit()
    if old:
        assert old.endswith(b"\n")
        assert len(old) >= LIMIT // 2 - SMALL
    else:
        assert new == stream


@pytest.mark.parametrize("size", [1, 2, SMALL - 1, SMALL])
def test_a_line_without_end_is_bounded(tmp_path, size):
    stream = b"".join(b"%09d" % n for n in range(4000))
    old, new = rotate(tmp_path, split(stream, [size]))
    assert stream.endswith(old + new)
    assert max(len(old), len(new)) <= LIMIT // 2 + 2 * SMALL
    assert len(old) >= LIMIT // 2


def test_a_line_whose_newline_arrives_separately_stays_complete(tmp_path):
    line = b"x" * 999
    old, new = rotate(tmp_path, [line, b"\n"] * 50)
    assert set(old.splitlines()) == set(new.splitlines()) == {line}
    assert old.endswith(b"\n")


def test_a_long_stream_loses_only_its_oldest_part(log):
    lines = [b"line %07d\n" % number for number in range(20_000)]
    for start in range(0, len(lines), 37):
        os.write(log.descriptor, b"".join(lines[start : start + 37]))
    log.flush()
    old, new = contents(log)
    assert b"".join(lines).endswith(old + new)
    assert len(old) >= SMALL // 2
    assert max(len(old), len(new)) <= 3 * SMALL


def test_the_old_file_is_kept_if_no_new_one_can_be_created(log):
    blocked = Path(log.path + ".new")
    blocked.mkdir()
    write(log, *[b"x" * 99 + b"\n"] * 200)
    assert contents(log) == [b"", (b"x" * 99 + b"\n") * 200]
    blocked.rmdir()
    write(log, b"y\n", b"z\n")
    old, new = contents(log)
    assert old + new == (b"x" * 99 + b"\n") * 200 + b"y\nz\n"
    assert len(new) < 100


# What somebody else did to its file


def test_a_deleted_log_is_made_again_and_says_so(log):
    write(log, b"one\n")
    os.remove(log.path)
    write(log, b"two\n")
    [_, text] = contents(log)
    assert text.splitlines() == [b"[tfdeploy: the log was deleted; a new one starts here]", b"two"]


def test_a_deleted_log_is_made_again_even_if_the_task_is_silent(log):
    write(log, b"one\n")
    os.remove(log.path)
    write(log, b" ")  # wakes it once
    os.remove(log.path)
    until(lambda: os.path.exists(log.path), "a new log")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_what_replaced_a_log_is_moved_aside_and_named(log, make):
    write(log, b"one\n")
    os.remove(log.path)
    make(log.path)
    write(log, b"two\n")
    first, second = contents(log)[1].splitlines()
    assert first.startswith(b"[tfdeploy: the log is a ")
    assert first.endswith(b"; that is now ps-0.log.found, and a new one starts here]")
    assert second == b"two"
    assert os.path.lexists(log.path + ".found")


def test_a_log_that_an_editor_has_written_again_is_continued(log):
    write(log, b"one\n")
    Path(log.path + "~").write_bytes(b"edited\n")
    os.replace(log.path + "~", log.path)
    write(log, b"two\n")
    assert contents(log)[1] == b"edited\ntwo\n"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_a_supervisor_that_starts_moves_aside_what_is_no_log(tmp_path, make):
    path = os.fspath(tmp_path / "ps-0.log")
    make(path)
    log = TaskLog(path, 2 * SMALL, PATIENT)
    write(log, b"one\n")
    assert contents(log)[1].splitlines()[1:] == [b"one"]
