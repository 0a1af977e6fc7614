"""Histories from hosts: what is invalid is skipped, and states become spans."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.branches.measuring import history
from tfdeploy.branches.measuring.history import Change, Span, read, spans

READY, BACKOFF, END = Change(10, "READY"), Change(20, "BACKOFF", reason="x"), Change(30, "FAILED")


def written(tmp_path, content):
    file = tmp_path / "h.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_changes_are_read_in_order(tmp_path):
    lines = '{"at": 1, "state": "READY"}\n{"at": 2.5, "state": "FAILED", "restarts": 3, "lost": 1}'
    assert read(written(tmp_path, lines)) == (
        Change(1.0, "READY"),
        Change(2.5, "FAILED", restarts=3, lost=1),
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"at": 1, "state": "<b>"}', '{"at": NaN, "state": "READY"}', '{"state": "READY"}',
        '{"at": -1, "state": "READY"}', '{"at": 1e300, "state": "READY"}', "[]", "7", "", "{",
        '{"at": 1, "state": ["READY"]}', '{"at": 1, "state": "READY", "restarts": "many"}',
        "[" * 100000, '{"at": 1, "state": "READY", "restarts": Infinity}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_change_is_skipped(tmp_path, line):
    valid = '{"at": 5, "state": "READY"}'
    assert read(written(tmp_path, f"{line}\n{valid}\n")) == (Change(5.0, "READY"),)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_skipped(tmp_path_factory, data):
    assert isinstance(read(written(tmp_path_factory.mktemp("h"), data)), tuple)


def test_texts_of_a_host_are_short_and_without_control_characters(tmp_path):
    line = json.dumps({"at": 1, "state": "READY", "reason": "\x1b[31m\n" + "x" * 10**6})
    line = (
        line[: history.MAX_HISTORY_BYTES // 2] + '"}'
        if len(line) > history.MAX_HISTORY_BYTES
        else line
    )
    [change] = read(written(tmp_path, line))
    assert change.reason.startswith("\\x1b[31m\\n")
    assert len(change.reason) < 2 * history.MAX_TEXT


def test_a_missing_file_and_a_link_have_no_changes(tmp_path):
    (tmp_path / "link").symlink_to(written(tmp_path, '{"at": 1, "state": "READY"}'))
    assert read(tmp_path / "absent") == read(tmp_path / "link") == ()


def test_a_state_lasts_until_the_next_one(tmp_path):
    assert spans([READY, BACKOFF, END], 99.0) == (
        Span("READY", 10, 20),
        Span("BACKOFF", 20, 30, "x"),
        Span("FAILED", 30, 30),
    )


def test_the_last_state_of_a_live_task_lasts_until_now():
    assert spans([READY], 17.0) == (Span("READY", 10, 17.0),)
    assert spans([READY], 3.0) == (Span("READY", 10, 10),)  # another clock


def test_a_resumed_task_has_a_gap_after_its_end():
    assert spans([END, Change(50, "STARTING")], 60.0)[0] == Span("FAILED", 30, 30)


def test_a_reason_is_shown_only_for_the_state_that_it_explains():
    again = Change(21, "RUNNING", reason="x")
    assert [span.reason for span in spans([READY, BACKOFF, again], 30.0)] == ["", "x", ""]
