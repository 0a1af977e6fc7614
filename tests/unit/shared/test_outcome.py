"""How a run ended, by the states of its tasks."""

from __future__ import annotations

import pytest

from tfdeploy.shared.outcome import (
    RUN_ENDED,
    SIGTERM_EXIT,
    START_FAILED,
    STOPPED_AFTER_LOSS,
    Outcome,
    outcome_of,
)
from tfdeploy.shared.records import FAILED, LOST, READY, STOPPED, SUCCEEDED, TaskState

CHIEF = "worker:0"


def state(name, **fields):
    return TaskState(name, 0.0, **fields)


@pytest.mark.parametrize(
    ("chief", "result", "code"),
    [
        (state(SUCCEEDED), "succeeded", 0),
        (state(STOPPED, planned=True), "ended", 0),
        (state(FAILED, exit=3), "failed", 3),
        (state(FAILED, exit=-9), "failed", 137),
        (state(FAILED, exit=0), "failed", 1),
        (state(LOST), "lost", 1),
        (state(STOPPED, reason=STOPPED_AFTER_LOSS), "lost", 1),
        (state(READY), "unknown", 1),
        (None, "unknown", 1),
        (state(STOPPED, exit=-15), "stopped", SIGTERM_EXIT),
        (state(STOPPED, exit=-15, reason=f"{START_FAILED}; stopped by SIGTERM"), "failed", 1),
    ],
)
def test_the_state_of_the_chief_decides(chief, result, code):
    others = {"worker:1": state(SUCCEEDED), "worker:2": state(FAILED, exit=4), "ps:0": None}
    assert outcome_of(CHIEF, {CHIEF: chief, **others}) == Outcome(result, code, CHIEF)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (
            {CHIEF: state(STOPPED, cause="ps:0"), "ps:0": state(STOPPED)},
            Outcome("stopped", SIGTERM_EXIT, "ps:0"),
        ),
        (
            {
                CHIEF: state(STOPPED, cause="worker:1"),
                "worker:1": state(STOPPED, cause="ps:0"),
                "ps:0": state(FAILED, exit=2),
            },
            Outcome("failed", 1, "ps:0"),
        ),
        (
            {CHIEF: state(FAILED, exit=-15, cause="ps:0"), "ps:0": state(FAILED, exit=2)},
            Outcome("failed", 1, "ps:0"),
        ),
        # A task that only fell silent has not said why.
        (
            {CHIEF: state(FAILED, exit=-15, cause="ps:0"), "ps:0": state(READY)},
            Outcome("failed", 1, CHIEF),
        ),
        (
            {CHIEF: state(STOPPED, cause="ps:0"), "ps:0": state(STOPPED, cause=CHIEF)},
            Outcome("failed", 1, "ps:0"),
        ),
        ({CHIEF: state(STOPPED, cause="ps:0")}, Outcome("failed", 1, CHIEF)),
    ],
)
def test_causes_are_followed_to_the_first_one_that_has_ended(tasks, expected):
    assert outcome_of(CHIEF, tasks) == expected


def test_a_run_that_was_stopped_after_a_task_that_its_chief_needs_was_lost_is_lost():
    tasks = {CHIEF: state(STOPPED), "ps:0": state(LOST), "worker:1": state(LOST)}
    assert outcome_of(CHIEF, tasks, ["ps:0"]) == Outcome("lost", 1, "ps:0")
    assert outcome_of(CHIEF, tasks).result == "stopped"


@pytest.mark.parametrize("chief", [None, state(LOST)])
@pytest.mark.parametrize(
    ("words", "result"),
    [("succeeded", "succeeded"), ("failed", "failed"), ("was stopped", "stopped")],
)
def test_the_end_of_a_chief_whose_host_is_gone_is_known_from_the_tasks_that_it_ended(
    chief, words, result
):
    reason = f"{RUN_ENDED.format(CHIEF, words)}; stopped by SIGTERM"
    tasks = {CHIEF: chief, "worker:1": state(STOPPED, reason=reason)}
    assert outcome_of(CHIEF, tasks).result == result
    failed = state(FAILED, reason=f"exit 7; not restarted: {reason}")
    assert outcome_of(CHIEF, {CHIEF: chief, "worker:1": failed}).result == result
