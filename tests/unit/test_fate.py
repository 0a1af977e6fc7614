"""Must a task end because of what happened elsewhere? Each case, with the clocks as arguments."""

from __future__ import annotations

import pytest

from tfdeploy.agent import fate
from tfdeploy.agent.fate import Order
from unit.made import circle, launch

NEEDED = ["ps:0", "ps:1"]
TASKS = [*NEEDED, "worker:0", "worker:1", "evaluator:0"]
SUCCEEDED = {"state": "SUCCEEDED", "reason": "exit 0"}
FAILED = {"state": "FAILED", "reason": "exit 1"}
STOPPED = {"state": "STOPPED", "reason": "as asked"}


def order(task, **changes):
    job, index = task.split(":")
    told = circle(tasks=TASKS, needed=NEEDED, orphan_timeout_s=60.0)
    return launch(job=job, index=int(index), circle=told, linger_s=4.0, **changes)


# The chief


def chief(age_s=10.0, max_duration_s=None, **heard):
    """What the chief of a run must do; `heard` changes what each task said last."""
    said = {task: (0.5, "READY", "") for task in TASKS if task != "worker:0"}
    said.update({task.replace("_", ":"): words for task, words in heard.items()})
    return fate.of_chief(order("worker:0", max_duration_s=max_duration_s), said, age_s)


def test_a_chief_goes_on_while_all_is_well():
    assert chief() is None


@pytest.mark.parametrize("state", ["", "STARTING", "RUNNING", "READY", "BACKOFF", "SUCCEEDED"])
def test_a_chief_waits_for_a_task_that_may_come_back(state):
    assert chief(ps_1=(0.5, state, "why")) is None


def test_a_chief_fails_with_the_task_that_it_needs():
    assert chief(ps_1=(0.5, "FAILED", "exit 2")) == Order("ps:1 failed: exit 2", "FAILED", "ps:1")


def test_a_chief_stops_with_the_task_that_was_stopped_from_under_it():
    stopped = Order("ps:1 was stopped: as asked, exit 0", "STOPPED", "ps:1")
    assert chief(ps_1=(0.5, "STOPPED", "as asked, exit 0")) == stopped


def test_it_is_the_first_that_failed_who_is_named():
    both = chief(ps_0=(0.5, "FAILED", "exit 2"), ps_1=(0.5, "FAILED", "exit 3"))
    assert both.cause == "ps:0"


@pytest.mark.parametrize("task", ["worker_1", "evaluator_0"])
@pytest.mark.parametrize("words", [(0.5, "FAILED", "exit 1"), (9999.0, "READY", "")])
def test_a_chief_does_without_the_others(task, words):
    assert chief(**{task: words}) is None


@pytest.mark.parametrize("state", ["", "READY", "BACKOFF"])
def test_a_chief_waits_for_a_silent_task_only_for_so_long(state):
    assert chief(ps_1=(60.0, state, "")) is None
    assert chief(ps_1=(60.5, state, "")) == Order(
        "nothing was heard of ps:1 for 60 s", "FAILED", "ps:1"
    )


def test_one_that_has_done_its_part_is_not_missed():
    assert chief(ps_1=(9999.0, "SUCCEEDED", "exit 0")) is None


def test_a_run_lasts_no_longer_than_it_may():
    assert chief(age_s=86400.0 * 365) is None
    assert chief(age_s=90.0, max_duration_s=90.0) is None
    assert chief(age_s=90.1, max_duration_s=90.0) == Order(
        "max_duration_s, 90 s, is over", "STOPPED"
    )


def test_a_lost_task_is_told_rather_than_the_time():
    assert chief(99.0, 90.0, ps_0=(0.5, "FAILED", "exit 2")).state == "FAILED"


# The others, before the end of the run


def other(task, *, silent_s=0.5, ended_s=None, ended=None, going=(), **changes):
    told = {"ended": ended, "going": [*going], "checkpoint": None}
    return fate.of_other(order(task, **changes), told, silent_s, ended_s)


@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_the_others_go_on_while_the_chief_does(task):
    assert other(task) is None
    assert other(task, silent_s=60.0) is None
    assert fate.of_other(order(task), {}, 60.0, None) is None


@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_who_hears_nothing_for_too_long_gives_up(task):
    assert other(task, silent_s=61.0) == Order(
        "nothing was heard of worker:0 for 61 s", "STOPPED", "worker:0"
    )


def test_it_is_the_chief_that_looks_to_how_long_a_run_lasts():
    assert other("worker:1", max_duration_s=0.1) is None


# The others, once the chief has ended


@pytest.mark.parametrize(
    ("ended", "word"), [(SUCCEEDED, "succeeded"), (FAILED, "failed"), (STOPPED, "was stopped")]
)
@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_the_end_of_the_run_is_everyones(task, ended, word):
    assert other(task, ended_s=99.0, ended=ended) == Order(
        f"the run has ended: worker:0 {word}", "STOPPED"
    )


@pytest.mark.parametrize("task", ["worker:1", "evaluator:0"])
def test_after_a_success_the_others_may_end_by_themselves_for_a_while(task):
    assert other(task, ended_s=3.9, ended=SUCCEEDED) is None
    assert other(task, ended_s=4.0, ended=SUCCEEDED) is not None


@pytest.mark.parametrize("ended", [FAILED, STOPPED])
@pytest.mark.parametrize("task", ["worker:1", "evaluator:0"])
def test_after_any_other_end_they_have_no_reason_to(task, ended):
    assert other(task, ended_s=0.0, ended=ended) is not None


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
@pytest.mark.parametrize("dialling", ["worker:1", "chief:0"])
def test_a_ps_outlives_those_who_dial_it(ended, dialling):
    going = ["ps:0", "ps:1", dialling, "evaluator:0"]
    last_s = 4.0 + fate.PS_MARGIN_S
    assert other("ps:0", ended_s=last_s - 0.1, ended=ended, going=going) is None
    assert other("ps:0", ended_s=last_s, ended=ended, going=going) is not None


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
def test_a_ps_that_nobody_dials_ends_at_once(ended):
    going = ["ps:0", "ps:1", "evaluator:0"]
    assert other("ps:0", ended_s=0.0, ended=ended, going=going) is not None


def test_a_ps_waits_longer_than_any_worker_may_go_on():
    worker_ends_s = next(s for s in range(99) if other("worker:1", ended_s=s, ended=SUCCEEDED))
    going = ["ps:0", "worker:1"]
    assert other("ps:0", ended_s=worker_ends_s, ended=SUCCEEDED, going=going) is None


def test_a_chief_that_has_gone_after_its_last_word_is_not_missed():
    assert other("evaluator:0", silent_s=9999.0, ended_s=1.0, ended=SUCCEEDED) is None
