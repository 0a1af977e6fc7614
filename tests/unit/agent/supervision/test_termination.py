"""Orders that end a task because of other tasks of its run; the clocks are arguments."""

from __future__ import annotations

import pytest
from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent.supervision import termination
from tfdeploy.agent.supervision.heartbeat.messages import Answer, End
from tfdeploy.agent.supervision.termination import Order
from tfdeploy.shared.outcome import why_stopped

NEEDED = ["ps:0", "ps:1"]
TASKS = [*NEEDED, "worker:0", "worker:1", "evaluator:0"]
SUCCEEDED = End("SUCCEEDED", "exit 0")
FAILED = End("FAILED", "exit 1")
STOPPED = End("STOPPED", "on request")


def launch_of(task, **changes):
    job, index = task.split(":")
    settings = make_heartbeat_settings(tasks=TASKS, needed=NEEDED, orphan_timeout_s=60.0)
    changes = {"linger_s": 4.0, **changes}
    return make_launch(job=job, index=int(index), heartbeat=settings, **changes)


# The chief


def chief_order(age_s=10.0, max_duration_s=None, **changes):
    """Return the order for the chief; `changes` has other reports than READY half a second ago."""
    reports = {task: (0.5, "READY", "") for task in TASKS if task != "worker:0"}
    reports.update({task.replace("_", ":"): report for task, report in changes.items()})
    launch = launch_of("worker:0", max_duration_s=max_duration_s)
    return termination.chief_order(launch, reports, age_s)


def test_a_run_whose_gpus_are_idle_is_stopped_if_hosts_toml_says_so():
    reports = dict.fromkeys(make_launch().heartbeat.needed, (0.5, "READY", ""))
    limited = make_launch(idle_gpu_stop_s=1800.0)
    assert termination.chief_order(limited, reports, 9000.0, idle_s=1799.0) is None
    assert termination.chief_order(make_launch(), reports, 9000.0, idle_s=9000.0) is None
    order = termination.chief_order(limited, reports, 9000.0, idle_s=1800.0)
    assert order == Order("its GPUs were idle for 30m (idle_gpu_stop_s)")
    assert why_stopped(f"{order.reason}; stopped by SIGTERM") == order.reason
    assert why_stopped("on request; stopped by SIGTERM") == ""


def test_a_chief_continues_while_all_tasks_run():
    assert chief_order() is None


@pytest.mark.parametrize("state", ["", "STARTING", "RUNNING", "READY", "BACKOFF", "SUCCEEDED"])
def test_a_chief_continues_without_a_task_that_may_restart(state):
    assert chief_order(ps_1=(0.5, state, "why")) is None


def test_a_chief_fails_with_a_task_that_it_needs():
    assert chief_order(ps_1=(0.5, "FAILED", "exit 2")) == Order(
        "ps:1 failed: exit 2", "FAILED", "ps:1"
    )


def test_a_chief_goes_on_if_a_task_is_not_restarted_because_another_has_succeeded():
    """Then no step is left that all of them take together."""
    alone = "killed by SIGSEGV; not restarted alone, because worker:2 has ended"
    assert chief_order(ps_1=(9999.0, "FAILED", alone)) is None


def test_a_chief_stops_with_a_task_that_it_needs():
    stopped = Order("ps:1 was stopped: on request; exit 0", "STOPPED", "ps:1")
    assert chief_order(ps_1=(0.5, "STOPPED", "on request; exit 0")) == stopped


def test_the_first_failed_task_is_the_cause():
    order = chief_order(ps_0=(0.5, "FAILED", "exit 2"), ps_1=(0.5, "FAILED", "exit 3"))
    assert order.cause == "ps:0"


@pytest.mark.parametrize("task", ["worker_1", "evaluator_0"])
@pytest.mark.parametrize("report", [(0.5, "FAILED", "exit 1"), (9999.0, "READY", "")])
def test_a_chief_continues_without_tasks_that_it_does_not_need(task, report):
    assert chief_order(**{task: report}) is None


@pytest.mark.parametrize("state", ["", "READY", "BACKOFF"])
def test_a_chief_fails_after_orphan_timeout_s_without_a_message(state):
    assert chief_order(ps_1=(60.0, state, "")) is None
    assert chief_order(ps_1=(60.5, state, "")) == Order(
        "no message from ps:1 for 60 s", "FAILED", "ps:1"
    )


def test_a_task_that_succeeded_may_be_silent():
    assert chief_order(ps_1=(9999.0, "SUCCEEDED", "exit 0")) is None


def test_a_run_ends_after_max_duration_s():
    assert chief_order(age_s=86400.0 * 365) is None
    assert chief_order(age_s=90.0, max_duration_s=90.0) is None
    assert chief_order(age_s=90.1, max_duration_s=90.0) == Order(
        "max_duration_s (90 s) has passed", "STOPPED", planned=True
    )


def test_a_failed_task_is_reported_rather_than_max_duration_s():
    assert chief_order(99.0, 90.0, ps_0=(0.5, "FAILED", "exit 2")).state == "FAILED"


# The other tasks, before the end of the run


def other_order(task, *, silent_s=0.5, ended_s=None, ended=None, going=(), age_s=0.0, **changes):
    answer = Answer(ended=ended, unfinished=[*going])
    return termination.other_order(launch_of(task, **changes), answer, silent_s, ended_s, age_s)


@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_the_others_continue_while_the_chief_does(task):
    assert other_order(task) is None
    assert other_order(task, silent_s=60.0) is None
    assert termination.other_order(launch_of(task), Answer(), 60.0, None) is None


@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_a_task_stops_after_orphan_timeout_s_without_a_message(task):
    assert other_order(task, silent_s=61.0) == Order(
        "no message from worker:0 for 61 s", "STOPPED", "worker:0"
    )


def test_only_the_chief_observes_max_duration_s_until_it_ends():
    assert other_order("worker:1", age_s=9.0, max_duration_s=0.1) is None


# The others, after the end of the chief


@pytest.mark.parametrize(
    ("ended", "description"),
    [(SUCCEEDED, "succeeded"), (FAILED, "failed"), (STOPPED, "was stopped")],
)
@pytest.mark.parametrize("task", ["ps:0", "worker:1", "evaluator:0"])
def test_the_end_of_the_run_ends_all_tasks(task, ended, description):
    assert other_order(task, ended_s=99.0, ended=ended) == Order(
        f"the run has ended: worker:0 {description}", "STOPPED"
    )


@pytest.mark.parametrize("task", ["worker:1", "evaluator:0"])
def test_after_a_success_the_others_get_linger_s_to_end_by_themselves(task):
    assert other_order(task, ended_s=3.9, ended=SUCCEEDED) is None
    assert other_order(task, ended_s=4.0, ended=SUCCEEDED) is not None


def test_without_a_limit_a_worker_continues_after_a_success_but_not_beyond_max_duration_s():
    limits = {"linger_s": None, "max_duration_s": 9e9, "ended": SUCCEEDED}
    assert other_order("worker:1", ended_s=1e9, age_s=1e9, **limits) is None
    assert other_order("worker:1", ended_s=1e9, age_s=9.1e9, **limits) == Order(
        "max_duration_s (9e+09 s) has passed", planned=True
    )
    assert other_order("worker:1", ended_s=0.0, ended=FAILED, linger_s=None) is not None


def test_without_a_limit_a_ps_ends_after_the_workers():
    after = {"ended_s": 1e9, "ended": SUCCEEDED, "linger_s": None}
    assert other_order("ps:0", going=["worker:1", "ps:0"], **after) is None
    assert other_order("ps:0", going=["ps:0", "ps:1"], **after) is not None
    failed = {**after, "ended": FAILED}
    assert other_order("ps:0", going=["worker:1"], **failed) is not None


def test_a_ps_ends_when_the_chiefs_supervisor_has_given_up_a_worker_that_is_not_heard():
    after = {"ended_s": 1e9, "ended": SUCCEEDED, "linger_s": None}
    assert other_order("ps:0", going=["worker:1"], silent_s=61.0, **after) is not None
    assert other_order("worker:1", going=["worker:1"], silent_s=61.0, **after) is None


@pytest.mark.parametrize("ended", [FAILED, STOPPED])
@pytest.mark.parametrize("task", ["worker:1", "evaluator:0"])
def test_after_any_other_end_the_others_end_at_once(task, ended):
    assert other_order(task, ended_s=0.0, ended=ended) is not None


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
@pytest.mark.parametrize("user", ["worker:1", "chief:0"])
def test_a_ps_outlives_the_tasks_that_use_it(ended, user):
    going = ["ps:0", "ps:1", user, "evaluator:0"]
    last_s = 4.0 + termination.PS_MARGIN_S
    assert other_order("ps:0", ended_s=last_s - 0.1, ended=ended, going=going) is None
    assert other_order("ps:0", ended_s=last_s, ended=ended, going=going) is not None


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
def test_a_ps_without_users_ends_at_once(ended):
    going = ["ps:0", "ps:1", "evaluator:0"]
    assert other_order("ps:0", ended_s=0.0, ended=ended, going=going) is not None


def test_a_ps_waits_longer_than_any_worker_lingers():
    worker_ends_s = next(
        s for s in range(99) if other_order("worker:1", ended_s=s, ended=SUCCEEDED)
    )
    going = ["ps:0", "worker:1"]
    assert other_order("ps:0", ended_s=worker_ends_s, ended=SUCCEEDED, going=going) is None


def test_a_chief_may_be_silent_after_it_has_reported_its_end():
    assert other_order("evaluator:0", silent_s=9999.0, ended_s=1.0, ended=SUCCEEDED) is None


@pytest.mark.parametrize("silent", [False, True])
def test_a_reported_stop_is_as_silent_as_it_was(silent):
    order = termination.reported_stop("ps:1", silent)
    assert order == Order("the run was stopped, as ps:1 reported", silent=silent)
