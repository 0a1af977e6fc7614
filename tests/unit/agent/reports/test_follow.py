"""Each complete log line and each state change is reported once."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.machine import lock
from tfdeploy.agent.reports.follow import follow
from tfdeploy.agent.reports.tail import CHUNK
from tfdeploy.shared import records
from tfdeploy.shared.protocol.reports import LogLines, NewCheckpoint, StateChange
from tfdeploy.shared.records import TaskState


def follow_events(lines=None, forever=True, logs=True, tasks=("worker:0",), **more):
    return list(follow("p", "r", list(tasks), logs, lines, forever, **more))


def kinds(events):
    return [type(event) for event in events]


def lines_of(events):
    return [line for event in events if isinstance(event, LogLines) for line in event.lines]


def test_follow_reports_the_log_before_the_end_of_its_task(log):
    log.write_text("one\ntwo\n")
    first, last = follow_events()
    assert (first.task, first.lines) == ("worker:0", ["one", "two"])
    assert (last.state.task, last.state.state) == ("worker:0", "SUCCEEDED")


def test_follow_without_logs_reports_only_states(log):
    log.write_text("one\n")
    assert kinds(follow_events(logs=False)) == [StateChange]


@pytest.mark.parametrize(
    ("count", "lines"),
    [(None, ["1", "2", "3"]), (0, []), (1, ["3"]), (2, ["2", "3"]), (9, ["1", "2", "3"])],
)
def test_follow_starts_with_the_requested_number_of_old_lines(log, count, lines):
    log.write_text("1\n2\n3\n")
    assert lines_of(follow_events(lines=count)) == lines


def test_a_last_line_without_newline_is_reported_after_the_task_ended(log):
    log.write_text("one\nhalf")
    assert lines_of(follow_events()) == ["one", "half"]


def test_a_line_without_newline_is_not_reported_while_the_task_runs(log):
    directory = paths.task("p", "r", "worker:0")
    records.write(paths.state(directory), records.to_json(TaskState("RUNNING", 0.0)))
    lock_descriptor = lock.acquire(directory)
    log.write_text("one\nhalf")
    try:
        assert lines_of(follow_events(forever=False)) == ["one"]
    finally:
        os.close(lock_descriptor)


@pytest.mark.parametrize("text", ["a\n\nb\n", "\na\n", "a\n\n", "\n\n\n", "a\n\n\n"])
def test_empty_lines_are_reported(log, text):
    log.write_text(text)
    assert lines_of(follow_events()) == text.removesuffix("\n").split("\n")


def test_a_long_log_is_reported_completely(log):
    lines = [f"{number} " + "é" * 50 for number in range(CHUNK // 50)]
    log.write_text("\n".join(lines) + "\n")
    assert lines_of(follow_events()) == lines


def test_an_endless_line_is_reported_in_parts(log):
    log.write_text("x" * (3 * CHUNK))
    parts = lines_of(follow_events())
    assert "".join(parts) == "x" * (3 * CHUNK)
    assert len(parts) > 1


def test_bytes_that_are_not_utf8_are_replaced(log):
    log.write_bytes(b"caf\xe9\n")
    assert lines_of(follow_events()) == ["caf\ufffd"]


def test_a_task_that_never_started_is_skipped(log):
    log.write_text("one\n")
    events = follow_events(tasks=("worker:0", "worker:1"))
    assert {event.task for event in events if isinstance(event, LogLines)} == {"worker:0"}
    assert follow_events(tasks=("worker:1",)) == []


def test_a_missing_log_of_a_task_that_has_ended_is_named(log):
    assert lines_of(follow_events()) == [f"… its log {log} is gone"]


def test_what_replaced_a_log_is_named_also_to_a_follower_who_selects_lines(log):
    os.mkfifo(log)
    note = f"… its log {log} is a FIFO, not a file"
    assert lines_of(follow_events()) == lines_of(follow_events(grep="nothing")) == [note]


def test_follow_resumes_at_its_cursors_across_a_rotation(log):
    log.write_text("one\n")
    cursor = follow_events()[0].cursor
    log.rename(f"{log}.1")
    log.write_text("two\n")
    assert lines_of(follow_events(lines=0, cursors={"worker:0": cursor})) == ["two"]


def test_follow_reports_the_cursor_first_if_it_skips_old_lines(log):
    log.write_text("one\n")
    first = follow_events(lines=0)[0]
    assert (first.task, first.lines) == ("worker:0", [])
    with log.open("a") as file:
        file.write("two\n")
    assert lines_of(follow_events(lines=0, cursors={"worker:0": first.cursor})) == ["two"]


# Checkpoints


@pytest.fixture
def checkpoints(log, root):
    """The checkpoint folder of worker:0, with a complete set that the state file does not name."""
    folder = root / "p" / "runs" / "r" / "worker-0" / "work" / "checkpoints"
    folder.mkdir(parents=True)
    for name in ("m-1.index", "m-1.data-00000-of-00001"):
        (folder / name).touch()
    return folder


def announced_checkpoints(chief="worker:0"):
    events = follow_events(logs=False, chief=chief)
    return [event.checkpoint for event in events if isinstance(event, NewCheckpoint)]


def test_follow_announces_the_newest_checkpoint_before_the_end_of_the_chief(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-1"\n')
    events = follow_events(logs=False, chief="worker:0")
    assert kinds(events) == [NewCheckpoint, StateChange]
    assert announced_checkpoints() == ["m-1"]


def test_only_the_host_of_the_chief_announces_checkpoints(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-1"\n')
    assert announced_checkpoints(chief="chief:0") == announced_checkpoints(chief="") == []


def test_follow_does_not_announce_an_incomplete_checkpoint(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-2"\n')
    assert announced_checkpoints() == []
