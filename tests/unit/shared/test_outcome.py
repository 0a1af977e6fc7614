"""How a run ended, by the states of its tasks."""

from __future__ import annotations

import pytest

from tfdeploy.shared.outcome import SIGTERM_EXIT, exit_code, result
from tfdeploy.shared.records import FAILED, LOST, STOPPED, SUCCEEDED, TaskState

CHIEF = "worker:0"


def state(name, **fields):
    return TaskState(name, 0.0, **fields)


@pytest.mark.parametrize(
    ("states", "expected", "code"),
    [
        ({CHIEF: state(SUCCEEDED)}, "succeeded", 0),
        ({CHIEF: state(STOPPED, planned=True)}, "ended", 0),
        ({CHIEF: state(FAILED, exit=3)}, "failed", 3),
        ({CHIEF: state(FAILED, exit=-9)}, "failed", 137),
        ({CHIEF: state(LOST)}, "failed", 1),
        ({}, "failed", 1),
        ({CHIEF: state(STOPPED)}, "stopped", SIGTERM_EXIT),
    ],
)
def test_the_state_of_the_chief_decides(states, expected, code):
    assert result(CHIEF, states.get) == expected
    assert exit_code(CHIEF, states.get) == code


def test_a_chief_that_ended_because_a_command_stopped_another_task_was_stopped():
    states = {CHIEF: state(STOPPED, cause="ps:0"), "ps:0": state(STOPPED)}
    assert (result(CHIEF, states.get), exit_code(CHIEF, states.get)) == ("stopped", SIGTERM_EXIT)


def test_causes_are_followed_to_the_first_one():
    states = {
        CHIEF: state(STOPPED, cause="worker:1"),
        "worker:1": state(STOPPED, cause="ps:0"),
        "ps:0": state(STOPPED),
    }
    assert result(CHIEF, states.get) == "stopped"
    states["ps:0"] = state(FAILED, exit=2)
    assert (result(CHIEF, states.get), exit_code(CHIEF, states.get)) == ("failed", 1)


def test_tasks_that_name_each_other_or_an_unknown_one_have_failed():
    circle = {CHIEF: state(STOPPED, cause="ps:0"), "ps:0": state(STOPPED, cause=CHIEF)}
    assert result(CHIEF, circle.get) == "failed"
    unknown = {CHIEF: state(STOPPED, cause="ps:0")}
    assert result(CHIEF, unknown.get) == "failed"
