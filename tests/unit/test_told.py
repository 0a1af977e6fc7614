"""A record that came from a host holds what its fields say, or is refused in the host's name."""

from __future__ import annotations

import math

import pytest

from tfdeploy.agent.disk import HeldRun
from tfdeploy.agent.records import TaskReport, to_json
from tfdeploy.errors import AgentError
from tfdeploy.told import record, sound

REPORT = TaskReport("ps:0", "READY", 1, 7, None, 0, "", step=3, step_age_s=0.5, log=["a"])
HELD = HeldRun("r", "f00d", "worker:0", True, {"ps:0": "READY"}, 1.5, 10, ["d"])


@pytest.mark.parametrize("whole", [REPORT, HELD])
def test_what_is_whole_is_taken(whole):
    assert record("h", type(whole), to_json(whole) | {"of a newer version": 1}) == whole


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("state", 5, "5"), ("state", None, "None"), ("task", ["ps:0"], "['ps:0']"),
        ("age_s", "1", "'1'"), ("age_s", math.inf, "inf"), ("age_s", math.nan, "nan"),
        ("age_s", True, "True"), ("pid", 1.5, "1.5"), ("pid", True, "True"),
        ("restarts", None, "None"), ("restarts", 10**40, "1" + "0" * 39), ("log", "a", "'a'"),
        ("log", ["a", 1], "['a', 1]"), ("log", {"a": 1}, "{'a': 1}"), ("step_age_s", [], "[]"),
    ],
)  # fmt: skip
def test_a_field_that_holds_something_else_is_named(key, value, shown):
    with pytest.raises(AgentError) as refused:
        record("h", TaskReport, to_json(REPORT) | {key: value})
    assert str(refused.value) == f"h: its answer makes no sense: {key} is {shown}"


@pytest.mark.parametrize("tasks", [[], {"ps:0": 1}, "ps:0", None])
def test_so_is_what_lies_in_it(tasks):
    with pytest.raises(AgentError, match=r"^h: its answer makes no sense: tasks is "):
        record("h", HeldRun, to_json(HELD) | {"tasks": tasks})


@pytest.mark.parametrize("answer", [None, 3, "x", [], {}, {"task": "ps:0"}])
def test_what_is_no_record_at_all_is_refused(answer):
    with pytest.raises(AgentError, match=r"^h: its answer makes no sense$"):
        record("h", TaskReport, answer)


def test_a_mistake_of_our_own_is_not_blamed_on_a_host():
    with pytest.raises(RuntimeError):
        sound("h", lambda: (_ for _ in ()).throw(RuntimeError))
