"""The index of a log says since when it has which line, in little space, and never loses one."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent.reports.logs import log_times
from tfdeploy.agent.reports.logs.log_times import MAX_SPANS, LogTimes, first_since, read


@pytest.fixture
def log(tmp_path):
    return os.fspath(tmp_path / "ps-0.log")


def test_what_is_written_within_a_second_is_one_span(log):
    times = LogTimes(log)
    for now, offset in ((100.0, 0), (100.4, 10), (100.99, 20), (101.1, 30), (160.0, 40)):
        times.add(7, offset, now)
    assert read(log) == [(100.0, 1.0, 7, 0), (101.1, 1.0, 7, 30), (160.0, 1.0, 7, 40)]


def test_a_new_supervisor_continues_the_index(log):
    LogTimes(log).add(7, 0, 100.0)
    LogTimes(log).add(7, 50, 200.0)
    assert [span[0] for span in read(log)] == [100.0, 200.0]


def test_a_rotation_leaves_out_the_deleted_file(log):
    times = LogTimes(log)
    times.add(6, 0, 100.0)
    times.add(7, 0, 200.0)
    times.keep_only(7)
    times.add(8, 0, 300.0)
    assert [span[2] for span in read(log)] == [7, 8]


def test_the_index_stays_small_and_new_times_exact(log):
    times = LogTimes(log)
    for number in range(3 * MAX_SPANS):
        times.add(7, 10 * number, 1000.0 + 2 * number)
    spans = read(log)
    assert len(spans) <= MAX_SPANS
    assert os.path.getsize(log + log_times.SUFFIX) < 100_000
    assert spans[0][0] == 1000.0
    assert all(span[1] == 1.0 for span in spans[-MAX_SPANS // 4 :])


def test_a_broken_index_counts_as_none(log):
    for content in ("", "100.0 1.0 7", "100.0 1.0 7 x\n", "\xff\n"):
        with open(log + log_times.SUFFIX, "w") as file:
            file.write(content)
        assert read(log) == []


def test_an_index_that_cannot_be_written_is_written_whole_later(log, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    times = LogTimes(log)
    times.add(7, 0, 100.0)
    with monkeypatch.context() as patch:
        patch.setattr(log_times, "_append", fail)
        times.add(7, 10, 200.0)
    times.add(7, 20, 300.0)
    assert [span[3] for span in read(log)] == [0, 10, 20]


@given(
    gaps=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=60),
    since=st.floats(1000.0, 2000.0),
    limit=st.sampled_from([4, 8, MAX_SPANS]),
)
def test_no_line_since_a_moment_is_left_out(tmp_path_factory, gaps, since, limit):
    log = os.fspath(tmp_path_factory.mktemp("log") / "ps-0.log")
    now, written = 1000.0, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_times, "MAX_SPANS", limit)
        times = LogTimes(log)
        for number, gap in enumerate(gaps):
            now += gap
            times.add(7, number, now)
            written.append(now)
        found = first_since(read(log), since)
    wanted = [number for number, at in enumerate(written) if at >= since]
    if wanted:
        assert found is not None
        assert found[3] <= wanted[0]
    if limit == MAX_SPANS and found is not None:
        assert written[found[3]] >= since - 2.2  # and at most a span too much
