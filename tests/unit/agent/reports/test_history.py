"""The history of a task's states: every change is a line, and a full disk costs only lines."""

from __future__ import annotations

import errno
import json
import os

import pytest

from tfdeploy.agent.reports import history
from tfdeploy.agent.reports.history import History
from tfdeploy.shared.records import TaskState


def state(at, name="READY", **changes):
    return TaskState(name, float(at), **changes)


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "worker-0.history.jsonl"


def test_each_change_is_a_line_with_its_time_and_reason(file):
    written = History(str(file))
    written.add(state(10, "READY"))
    written.add(state(12.3456, "BACKOFF", exit=-9, restarts=1, reason="killed", cause="ps:0"))
    assert lines(file) == [
        {"at": 10.0, "state": "READY", "exit": None, "restarts": 0, "reason": "", "cause": "",
         "lost": 0},
        {"at": 12.346, "state": "BACKOFF", "exit": -9, "restarts": 1, "reason": "killed",
         "cause": "ps:0", "lost": 0},
    ]  # fmt: skip


def test_a_later_supervisor_continues_the_file_and_only_its_user_can_read_it(file):
    History(str(file)).add(state(1))
    History(str(file)).add(state(2))
    assert [line["at"] for line in lines(file)] == [1.0, 2.0]
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_oldest_changes_are_dropped_when_the_file_is_full(file, monkeypatch):
    monkeypatch.setattr(history, "MAX_HISTORY_BYTES", 2000)
    written = History(str(file))
    for number in range(100):
        written.add(state(number))
        assert file.stat().st_size <= 2000
    kept = [line["at"] for line in lines(file)]
    assert kept == [float(number) for number in range(100 - len(kept), 100)]
    assert len(kept) > 5


def test_a_reason_of_any_length_and_any_characters_is_one_short_line(file):
    History(str(file)).add(state(1, reason="\n\u2028\udc80" * 10000))
    [line] = lines(file)
    assert len(line["reason"]) == history.MAX_REASON


def test_a_full_disk_costs_changes_that_the_next_line_counts(file, monkeypatch):
    written = History(str(file))
    written.add(state(1))
    before = file.read_bytes()

    def no_space(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", no_space)
        written.add(state(2))
        written.add(state(3))
    assert file.read_bytes() == before
    written.add(state(4))
    assert [(line["at"], line["lost"]) for line in lines(file)] == [(1.0, 0), (4.0, 2)]


def test_a_line_that_fits_only_in_part_is_removed(file, monkeypatch):
    written, write = History(str(file)), os.write
    written.add(state(1))
    with monkeypatch.context() as nearly_full:
        nearly_full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        written.add(state(2))
    assert [line["at"] for line in lines(file)] == [1.0]
    assert written.lost == 1


def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next_one(file):
    file.write_text('{"at": 1.0, "sta')
    History(str(file)).add(state(2))
    assert json.loads(file.read_text().splitlines()[1])["at"] == 2.0


def test_a_folder_that_cannot_be_written_and_a_link_are_no_error(file, tmp_path):
    absent = History(str(tmp_path / "absent" / "x.jsonl"))
    absent.add(state(1))
    assert absent.lost == 1
    (tmp_path / "mine").write_text("important\n")
    file.symlink_to(tmp_path / "mine")
    History(str(file)).add(state(1))
    assert (tmp_path / "mine").read_text() == "important\n"
