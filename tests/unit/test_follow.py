"""Logs and states as they come: every line once and whole, each change of a state once."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import lock, paths, records
from tfdeploy.agent.follow import follow
from tfdeploy.agent.records import TaskState
from tfdeploy.agent.tail import CHUNK
from unit.made import launch


@pytest.fixture
def log(root):
    """The log of worker:0, which has succeeded."""
    directory = paths.task("p", "r", "worker:0")
    os.makedirs(directory)
    os.makedirs(paths.logs("p", "r"))
    records.write(paths.launch(directory), records.to_json(launch()))
    records.write(paths.state(directory), records.to_json(TaskState("SUCCEEDED", 0.0, pid=7)))
    return root / "p" / "runs" / "r" / "logs" / "worker-0.log"


def told(lines=None, forever=True, logs=True, tasks=("worker:0",), **more):
    return list(follow("p", "r", list(tasks), logs, lines, forever, **more))


def lines_of(answers):
    return [line for answer in answers for line in answer.get("lines", [])]


def test_a_log_is_told_and_then_that_its_task_has_ended(log):
    log.write_text("one\ntwo\n")
    first, last = told()
    assert (first["task"], first["lines"]) == ("worker:0", ["one", "two"])
    assert (last["state"]["task"], last["state"]["state"]) == ("worker:0", "SUCCEEDED")


def test_states_alone_are_told_where_logs_are_not_asked_for(log):
    log.write_text("one\n")
    assert [list(answer) for answer in told(logs=False)] == [["state"]]


@pytest.mark.parametrize(
    ("count", "lines"),
    [(None, ["1", "2", "3"]), (0, []), (1, ["3"]), (2, ["2", "3"]), (9, ["1", "2", "3"])],
)
def test_a_log_begins_with_as_many_old_lines_as_are_asked_for(log, count, lines):
    log.write_text("1\n2\n3\n")
    assert lines_of(told(lines=count)) == lines


def test_a_last_line_without_its_end_is_told_when_the_task_has_ended(log):
    log.write_text("one\nhalf")
    assert lines_of(told()) == ["one", "half"]


def test_a_line_that_is_still_written_is_not_told_yet(log):
    directory = paths.task("p", "r", "worker:0")
    records.write(paths.state(directory), records.to_json(TaskState("RUNNING", 0.0)))
    held = lock.take(directory)
    log.write_text("one\nhalf")
    try:
        assert lines_of(told(forever=False)) == ["one"]
    finally:
        os.close(held)


@pytest.mark.parametrize("text", ["a\n\nb\n", "\na\n", "a\n\n", "\n\n\n", "a\n\n\n"])
def test_empty_lines_are_lines(log, text):
    log.write_text(text)
    assert lines_of(told()) == text.removesuffix("\n").split("\n")


def test_a_long_log_is_told_whole(log):
    lines = [f"{number} " + "é" * 50 for number in range(CHUNK // 50)]
    log.write_text("\n".join(lines) + "\n")
    assert lines_of(told()) == lines


def test_a_line_without_end_is_told_in_parts(log):
    log.write_text("x" * (3 * CHUNK))
    parts = lines_of(told())
    assert "".join(parts) == "x" * (3 * CHUNK)
    assert len(parts) > 1


def test_bytes_that_are_no_text_are_replaced(log):
    log.write_bytes(b"caf\xe9\n")
    assert lines_of(told()) == ["caf\ufffd"]


def test_a_task_that_never_started_is_left_out(log):
    log.write_text("one\n")
    assert {a["task"] for a in told(tasks=("worker:0", "worker:1")) if "lines" in a} == {"worker:0"}
    assert told(tasks=("worker:1",)) == []


def test_a_log_that_is_not_there_is_empty(log):
    assert [list(answer) for answer in told()] == [["state"]]


def test_a_following_that_broke_goes_on_at_its_cursors(log):
    log.write_text("one\n")
    cursor = told()[0]["cursor"]
    log.rename(f"{log}.1")
    log.write_text("two\n")
    assert lines_of(told(lines=0, cursors={"worker:0": cursor})) == ["two"]


def test_where_old_lines_are_left_out_the_cursor_is_told_before_there_is_a_new_one(log):
    log.write_text("one\n")
    first = told(lines=0)[0]
    assert (first["task"], first["lines"]) == ("worker:0", [])
    with log.open("a") as file:
        file.write("two\n")
    assert lines_of(told(lines=0, cursors={"worker:0": first["cursor"]})) == ["two"]


# Checkpoints


@pytest.fixture
def checkpoints(log, root):
    """The folder of worker:0's, and a set that is whole but not named yet."""
    folder = root / "p" / "runs" / "r" / "worker-0" / "work" / "checkpoints"
    folder.mkdir(parents=True)
    for name in ("m-1.index", "m-1.data-00000-of-00001"):
        (folder / name).touch()
    return folder


def announced(chief="worker:0"):
    return [a["checkpoint"] for a in told(logs=False, chief=chief) if "checkpoint" in a]


def test_the_newest_checkpoint_of_the_chief_is_announced_before_its_end(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-1"\n')
    kinds = [next(iter(answer)) for answer in told(logs=False, chief="worker:0")]
    assert kinds == ["checkpoint", "state"]
    assert announced() == ["m-1"]


def test_only_the_host_of_the_chief_announces(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-1"\n')
    assert announced(chief="chief:0") == announced(chief="") == []


def test_a_set_that_is_not_whole_is_not_announced(checkpoints):
    (checkpoints / "checkpoint").write_text('model_checkpoint_path: "m-2"\n')
    assert announced() == []
