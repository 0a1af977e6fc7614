"""Training progress is read from event files, also truncated and malformed ones."""

from __future__ import annotations

import os
import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import NAME, VERSION, event, masked_crc, record, varint, write

from tfdeploy.agent.outputs import event_files
from tfdeploy.agent.reports import progress
from tfdeploy.agent.reports.progress import Progress
from tfdeploy.shared import event_records


def steps(*numbers, age_s=100.0):
    """Return records of these steps, one second apart, the first of them `age_s` ago."""
    first = time.time() - age_s
    return [record(event(step, first + number)) for number, step in enumerate(numbers)]


def last_step(folder):
    return progress.last_step(below(folder))


def below(folder):
    return event_files.in_folder(os.fspath(folder))


def step(folder):
    found = last_step(folder)
    return found and found.step


# What is read


def test_crc32c_yields_its_published_check_value():
    """Source: RFC 3720, appendix B.4: 32 bytes of zeros have the crc 0x8a9136aa."""
    crc = 0x8A9136AA
    mask = ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32
    assert masked_crc(bytes(32)) == event_records.masked_crc(bytes(32)) == struct.pack("<I", mask)


def test_the_last_step_is_returned_with_its_age(tmp_path):
    write(tmp_path, record(event(0, time.time(), VERSION)), *steps(10, 20, 30, age_s=50.0))
    found = last_step(tmp_path)
    assert found.step == 30
    assert 48.0 <= found.age_s < 48.0 + 60


@pytest.mark.parametrize("number", [1, 127, 128, 300, 2**31, 2**63 - 1])
def test_steps_of_every_size_are_read(tmp_path, number):
    write(tmp_path, *steps(number))
    assert step(tmp_path) == number


def test_records_of_every_length_are_read():
    for size in range(300):
        data = record(event(size + 1, 0.0, b"\x2a" + varint(size) + bytes(size)))
        assert progress._highest_step(b"before" + data) == (size + 1, 0.0)


def test_the_age_is_that_of_the_first_event_of_the_last_step(tmp_path):
    write(tmp_path, *steps(1, 2, 2, 2, 1, 2, age_s=1000.0))
    assert last_step(tmp_path).step == 2
    assert last_step(tmp_path).age_s >= 999.0


def test_a_step_in_the_future_has_age_zero(tmp_path):
    write(tmp_path, *steps(5, age_s=-1000.0))
    assert last_step(tmp_path) == Progress(5, 0.0)


def test_a_summary_without_a_step_belongs_to_step_0(tmp_path):
    write(tmp_path, *steps(0))
    assert step(tmp_path) == 0


def test_a_file_with_only_a_version_has_no_step(tmp_path):
    write(tmp_path, record(event(0, time.time(), VERSION)))
    assert last_step(tmp_path) is None


def test_a_negative_step_is_ignored(tmp_path):
    write(tmp_path, record(event(2**64 - 1, time.time())))
    assert last_step(tmp_path) is None


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_an_event_without_a_finite_time_is_ignored(tmp_path, at):
    write(tmp_path, *steps(3), record(event(4, at)))
    assert step(tmp_path) == 3


# Which files are read


def test_the_newest_file_below_the_folder_is_read(tmp_path):
    write(tmp_path / "eval", *steps(900), age_s=20.0)
    write(tmp_path / "a" / "b", *steps(7), age_s=10.0)
    write(tmp_path, *steps(800), age_s=30.0)
    assert step(tmp_path) == 7


def test_a_newer_file_without_a_step_is_skipped(tmp_path):
    write(tmp_path, *steps(500), age_s=10.0)
    write(tmp_path, record(event(0, time.time(), VERSION)), name=NAME + ".2")
    write(tmp_path, name=NAME + ".3")
    assert step(tmp_path) == 500


def test_other_files_are_not_read(tmp_path):
    write(tmp_path, *steps(5), name="model.ckpt-5.index")
    assert last_step(tmp_path) is None
    assert last_step(tmp_path / "missing") is None
    assert last_step(tmp_path / "model.ckpt-5.index") is None


def test_only_regular_files_are_read(tmp_path):
    """Reading a fifo blocks; a link may lead anywhere, also to its own parent."""
    elsewhere = write(tmp_path / "elsewhere", *steps(5))
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / NAME)
    (folder / (NAME + ".2")).symlink_to(elsewhere)
    (folder / (NAME + ".3")).mkdir()
    (folder / "self").symlink_to(folder)
    (folder / "elsewhere").symlink_to(elsewhere.parent)
    assert last_step(folder) is None


# Truncated, long and malformed files


def test_an_incomplete_record_is_ignored(tmp_path):
    complete = b"".join(steps(1, 2))
    last = steps(3)[0]
    for length in range(len(last)):
        write(tmp_path, complete, last[:length])
        assert step(tmp_path) == 2
    write(tmp_path, complete, last)
    assert step(tmp_path) == 3


def test_only_the_end_of_a_long_file_is_needed(tmp_path):
    write(tmp_path, *steps(*range(1, 5000)))
    assert (tmp_path / NAME).stat().st_size > 2 * progress.TAIL_SIZES[0]
    assert step(tmp_path) == 4999


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_the_last_step_is_found_wherever_the_read_starts(tmp_path, shift, monkeypatch):
    monkeypatch.setattr(progress, "TAIL_SIZES", (100 + shift,))
    write(tmp_path, *steps(*range(1, 40)))
    assert step(tmp_path) == 39


def test_a_record_larger_than_the_first_read_does_not_hide_the_step_before_it(tmp_path):
    image = event(8, time.time(), b"\x2a" + varint(200_000) + bytes(200_000))
    write(tmp_path, *steps(7), record(image)[:-1])
    assert step(tmp_path) == 7
    write(tmp_path, *steps(7), record(image))
    assert step(tmp_path) == 8


def test_a_length_without_its_crc_is_not_a_record(tmp_path):
    """Also not after a real record that is larger than the first read."""
    fake = struct.pack("<Q", 19) + b"\1\2\3\4" + event(10**6, 0.0) + b"\1\2\3\4"
    noise = bytes(progress.TAIL_SIZES[0])
    write(tmp_path, record(event(1, 0.0, b"\x2a" + noise)), fake, *steps(2))
    assert step(tmp_path) == 2


def test_a_record_within_a_record_is_ignored():
    inner = record(event(10**6, 0.0))
    data = record(event(2, 0.0, b"\x2a" + varint(len(inner)) + inner))
    assert progress._highest_step(data) == (2, 0.0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x09",
        bytes(3_000_000),
        b"\xff" * 3_000_000,
        b"\x09" * 3_000_000,
        (bytes(12) + b"\x09") * 230_000,
        struct.pack("<Q", 2**63) + masked_crc(struct.pack("<Q", 2**63)) + event(1, 0.0),
        struct.pack("<Q", 2**32 - 1) + masked_crc(struct.pack("<Q", 2**32 - 1)) + event(1, 0.0),
        record(b""),
        record(b"\x09"),
        record(b"\x09" + bytes(8)),
        record(b"\x09" + bytes(8) + b"\x10"),
        record(b"\x09" + bytes(8) + b"\x10" + b"\xff" * 20),
        random.Random(1).randbytes(3_000_000),
    ],
    ids=range(14),
)
def test_a_malformed_event_file_has_no_step_and_is_read_quickly(tmp_path, data):
    write(tmp_path, data)
    start = time.thread_time()  # other processes do not count
    assert last_step(tmp_path) is None
    assert time.thread_time() - start < 10


@given(data=st.binary(max_size=300), cut=st.integers(0, 80))
def test_arbitrary_bytes_do_not_hide_a_step(data, cut):
    progress._highest_step(b"".join(steps(5))[cut:] + data)
    assert progress._highest_step(data + b"".join(steps(5)))[0] >= 5


def test_the_number_of_entries_that_are_looked_at_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "MAX_ENTRIES", 10)
    for number in range(20):
        (tmp_path / f"{number}").mkdir()
    write(tmp_path / "0", *steps(5))
    assert last_step(tmp_path) is None
    assert progress.quiet_s("/missing", below(tmp_path)) is None


def test_shallow_folders_are_looked_at_before_deep_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "MAX_ENTRIES", 25)
    for number in range(20):
        write(tmp_path / f"{number}" / "deep", *steps(1), age_s=-10.0)
    write(tmp_path, *steps(5))
    assert step(tmp_path) == 5


# Seconds since the last change


def test_quiet_s_counts_from_the_last_change_of_the_log_or_an_event_file(tmp_path):
    log = write(tmp_path, name="worker-0.log", age_s=300.0)
    write(tmp_path / "checkpoints", name="model.ckpt-1.index")
    folder = tmp_path / "checkpoints"
    assert 300.0 <= progress.quiet_s(os.fspath(log), below(folder)) < 360.0
    write(tmp_path / "checkpoints" / "train", age_s=100.0)
    assert 100.0 <= progress.quiet_s(os.fspath(log), below(folder)) < 160.0
    assert 100.0 <= progress.quiet_s("/missing", below(folder)) < 160.0


def test_quiet_s_is_zero_for_a_change_in_the_future(tmp_path):
    log = write(tmp_path, name="worker-0.log", age_s=-1000.0)
    assert progress.quiet_s(os.fspath(log), []) == 0.0


def test_quiet_s_is_none_without_a_log_and_event_files(tmp_path):
    assert progress.quiet_s("/missing", below(tmp_path)) is None
