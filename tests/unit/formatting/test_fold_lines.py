"""Folded logs: common lines once, and every task's own lines complete and in order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.formatting import fold_lines
from tfdeploy.formatting.fold_lines import Block, fold

TASKS = [f"worker:{number}" for number in range(4)]


def test_equal_logs_are_one_block():
    assert fold({task: ["a", "b"] for task in TASKS}) == [Block(tuple(TASKS), ("a", "b"))]


def test_only_what_differs_is_shown_for_each_task():
    logs = {task: ["starts", f"I am {task}", "ends"] for task in TASKS[:2]}
    assert fold(logs) == [
        Block(("worker:0", "worker:1"), ("starts",)),
        Block(("worker:0",), ("I am worker:0",)),
        Block(("worker:1",), ("I am worker:1",)),
        Block(("worker:0", "worker:1"), ("ends",)),
    ]


def test_a_task_without_lines_is_in_no_block():
    assert fold({"ps:0": [], "worker:0": ["a"]}) == [Block(("worker:0",), ("a",))]
    assert fold({}) == []


def test_time_stamps_of_tensorflow_do_not_differ():
    lines = "2026-05-01 10:15:0{}.123456: I tensorflow/core/x.cc:1] oneDNN"
    absl = "E0000 00:00:177763050{}.123456    471{} cuda_dnn.cc:8310] Unable"
    logs = {task: [lines.format(n), absl.format(n, n)] for n, task in enumerate(TASKS)}
    [block] = fold(logs)
    assert block.tasks == tuple(TASKS)
    assert block.lines == ("… I tensorflow/core/x.cc:1] oneDNN", "E… cuda_dnn.cc:8310] Unable")


def test_a_time_stamp_that_all_share_is_shown():
    line = "2026-05-01 10:15:00.123456: I x"
    assert fold({task: [line] for task in TASKS})[0].lines == (line,)


def test_long_logs_that_differ_are_not_compared_line_by_line(monkeypatch):
    monkeypatch.setattr(fold_lines, "MAX_COMPARED", 3)
    reached = []
    logs = {"ps:0": ["a", "b", "x", "e"], "ps:1": ["a", "c", "x", "d", "e"]}
    assert fold(logs, lambda: reached.append(True)) == [
        Block(("ps:0", "ps:1"), ("a",)),
        Block(("ps:0",), ("b", "x")),
        Block(("ps:1",), ("c", "x", "d")),
        Block(("ps:0", "ps:1"), ("e",)),
    ]
    assert reached == [True]


def test_the_begin_and_the_end_that_logs_have_in_common_may_be_long(monkeypatch):
    monkeypatch.setattr(fold_lines, "MAX_COMPARED", 1)
    reached = []
    logs = {task: ["a"] * 9 + [task] + ["b"] * 9 for task in ("ps:0", "ps:1")}
    assert fold(logs, lambda: reached.append(True)) == [
        Block(("ps:0", "ps:1"), ("a",) * 9),
        Block(("ps:0",), ("ps:0",)),
        Block(("ps:1",), ("ps:1",)),
        Block(("ps:0", "ps:1"), ("b",) * 9),
    ]
    assert reached == []


LOGS = st.dictionaries(st.sampled_from(TASKS), st.lists(st.sampled_from("abcd"), max_size=8))


@given(LOGS)
def test_no_line_of_a_task_is_lost_or_reordered(logs):
    blocks = fold(logs)
    for task, lines in logs.items():
        assert [line for b in blocks if task in b.tasks for line in b.lines] == lines
    assert all(first.tasks != second.tasks for first, second in pairwise(blocks))
