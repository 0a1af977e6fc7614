"""The report of a failed run names the task that failed first, and its consequences."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.launching.failure_report import root_cause
from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.errors import FleetError, TaskFailed, Unreachable
from tfdeploy.run import Run
from tfdeploy.shared.records import TaskReport

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2"
TASKS = ("ps:0", "worker:0", "worker:1")
HINT = "the logs: tfdeploy logs --hosts /home/ada/hosts.toml --run r-1"


def report(task, state="FAILED", age_s=10.0, reason="exit 1", **changes):
    fields = {"pid": 7, "exit": 1, "restarts": 0, **changes}
    return TaskReport(task=task, state=state, age_s=age_s, reason=reason, **fields)


def run_status(*reports, errors=(), hosts=HOSTS):
    """Return the status of a run in which these tasks have a report."""
    run = Run("r-1", "f00d", "a9e", make_inventory(hosts), make_plan(hosts))
    by_task = {each.task: each for each in reports}
    tasks = (TaskStatus(p, by_task.get(str(p.task))) for p in run.plan.placements)
    return RunStatus(run, tuple(tasks), tuple(errors))


def reported(*reports, first="", hosts=HOSTS):
    """Return the single failure that is reported."""
    failure = root_cause(run_status(*reports, hosts=hosts), first)
    assert isinstance(failure, FleetError)
    [one] = failure.errors
    assert isinstance(one, TaskFailed)
    return one


def test_the_failed_task_is_reported_with_its_host_and_the_end_of_its_log():
    one = reported(report("worker:1", log=["Traceback", "Oops"]), report("ps:0", "READY"))
    assert (one.task, one.host, one.log) == ("worker:1", "w", ("Traceback", "Oops"))
    assert one.message == "it ended: exit 1"


def test_the_hint_says_how_to_see_the_logs():
    failure = root_cause(run_status(report("worker:1")))
    assert str(failure) == f"worker:1 on w: it ended: exit 1\n  {HINT}"


def test_the_number_of_restarts_is_reported():
    used = "exit 1; all 10 restarts within an hour are used up"
    message = reported(report("worker:1", restarts=10, reason=used)).message
    assert message == f"it ended after 10 restarts: {used}"


def test_without_a_reason_the_exit_is_reported():
    assert reported(report("worker:1", reason="", exit=-9)).message == "it ended: killed by SIGKILL"


def test_a_lost_task_is_reported_as_lost():
    lost = report("worker:1", "LOST", reason="the host restarted")
    assert reported(lost).message == "it ended: LOST, the host restarted"


# Which task failed first


def test_the_task_that_failed_the_longest_ago_is_the_root_cause():
    one = reported(report("worker:0", age_s=3.0), report("worker:1", age_s=9.0, reason="exit 3"))
    assert one.task == "worker:1"
    assert one.message == "it ended: exit 3\n  failed, too: worker:0 on w (exit 1)"


def test_a_task_with_an_exception_of_its_own_was_not_ended_by_another():
    own = "exit 1, before it was ever READY: ModuleNotFoundError: No module named 'a'"
    lost = "exit 1; restart 1 of 10: tf.errors_impl.UnavailableError: connection reset"
    one = reported(
        report("worker:0", age_s=9.0, reason=own),
        report("worker:1", age_s=1.0, reason=f"{own}.b"),
        report("ps:0", age_s=1.0, reason=lost),
    )
    assert one.message.splitlines() == [
        f"it ended: {own}",
        f"  it caused the end of ps:0 on p ({lost})",
        f"  failed, too: worker:1 on w ({own}.b)",
    ]


@pytest.mark.parametrize(
    ("reason", "cause", "is_proven"),
    [
        ("worker:0 failed: exit 3", "worker:0", True),
        ("exit 1: UnavailableError: Socket closed", "", True),
        ("exit 1: RuntimeError: gloo/pair.cc:534] Connection closed by peer", "", True),
        ("exit 1: ValueError: no such column", "", False),
        ("killed by SIGSEGV", "", False),
        ("ps:0 failed: exit 2", "ps:0", False),
    ],
)
def test_a_cause_is_only_claimed_if_an_order_or_a_lost_connection_proves_it(
    reason, cause, is_proven
):
    first = report("worker:0", age_s=9.0, reason="exit 3")
    one = reported(first, report("worker:1", reason=reason, cause=cause), first="worker:0")
    assert ("it caused the end of worker:1" in one.message) == is_proven
    assert ("failed, too: worker:1" in one.message) != is_proven


def test_the_hint_for_a_task_whose_peers_have_ended_says_what_all_must_do():
    alone = "not restarted alone, because worker:1 has ended"
    lost = report(
        "worker:0", reason=f"exit 1: UnavailableError: Collective ops is aborted; {alone}"
    )
    assert "all workers save" in reported(lost, report("worker:1", "SUCCEEDED")).hint
    own = report("worker:0", reason=f"exit 1: ValueError: no such column; {alone}")
    assert reported(own, report("worker:1", "SUCCEEDED")).hint == ""


def test_a_reason_that_several_tasks_have_is_said_once():
    one = reported(*(report(f"worker:{index}", age_s=9.0 - index) for index in range(2)))
    assert one.message == "it ended: exit 1\n  failed in the same way: worker:1 on w"


@pytest.mark.parametrize(("gpus", "is_hinted"), [("", False), ("gpus = 2", True)])
def test_gpus_are_only_hinted_at_for_a_task_that_has_some(gpus, is_hinted):
    log = ["Could not find cuda drivers on your machine, GPU will not be used."]
    hosts = f"[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\n{gpus}"
    one = reported(report("worker:1", log=log), hosts=hosts)
    assert one.hint.startswith("this task uses no GPU") == is_hinted


def test_many_tasks_that_ended_for_the_same_reason_are_grouped():
    others = [report(f"worker:{index}", age_s=1.0) for index in range(1, 6)]
    odd = report("worker:6", age_s=2.0, reason="killed by SIGKILL")
    first = report("worker:0", age_s=9.0, reason="exit 3")
    one = reported(first, odd, *others, hosts="[hosts.w]\nworkers = 7")
    together = "worker:6 on w (killed by SIGKILL), worker:[1-5] on w (exit 1)"
    assert one.message == f"it ended: exit 3\n  failed, too: {together}"


def test_a_task_that_another_names_as_its_cause_is_the_root_cause_whatever_the_clocks_say():
    chief = report("worker:0", age_s=99.0, reason="ps:0 failed: exit 2", cause="ps:0")
    one = reported(chief, report("ps:0", age_s=1.0, reason="exit 2"))
    assert (one.task, one.host) == ("ps:0", "p")
    assert one.message == "it ended: exit 2\n  it caused the end of worker:0 on w"


def test_the_task_that_was_observed_to_fail_first_is_the_root_cause_whatever_others_name():
    chief = report("worker:0", cause="ps:0")
    assert reported(chief, report("ps:0"), report("worker:1"), first="worker:1").task == "worker:1"


def test_a_task_that_was_observed_first_is_not_the_root_cause_if_it_names_another_one():
    chief = report("worker:0", reason="worker:1 failed: exit 3", cause="worker:1")
    one = reported(chief, report("worker:1", reason="exit 3"), first="worker:0")
    assert one.task == "worker:1"


def test_a_failed_task_is_the_root_cause_before_a_stopped_one():
    stopped = report("worker:0", "STOPPED", age_s=99.0, reason="on request")
    one = reported(stopped, report("worker:1", age_s=1.0))
    assert one.task == "worker:1"
    assert one.message == "it ended: exit 1"


def test_if_no_task_failed_the_stopped_task_is_reported():
    over = report(
        "worker:0", "STOPPED", reason="max_duration_s (5 s) has passed; stopped by SIGTERM"
    )
    assert reported(over, report("ps:0", "READY")).message == f"it ended: {over.reason}"


def test_a_lost_task_that_another_names_as_its_cause_is_the_root_cause():
    gone = report("worker:0", "LOST", age_s=1.0, reason="its supervisor was killed")
    stopped = report("ps:0", "STOPPED", age_s=5.0, cause="worker:0")
    assert reported(gone, stopped).task == "worker:0"


@pytest.mark.parametrize("state", ["READY", "RUNNING", "BACKOFF", "SUCCEEDED"])
def test_an_active_or_succeeded_task_is_never_the_root_cause(state):
    one = reported(report("worker:0", state, age_s=99.0), report("worker:1"))
    assert (one.task, one.message) == ("worker:1", "it ended: exit 1")


def test_if_all_tasks_are_active_again_the_chief_is_reported_with_a_question():
    failure = root_cause(run_status(report("worker:0", "READY"), report("ps:0", "READY")))
    assert failure.errors[0].task == "worker:0"
    assert "did another command resume the run?" in failure.errors[0].message


# Hosts that do not answer


def test_hosts_that_do_not_answer_are_reported_after_the_root_cause():
    failure = root_cause(run_status(report("worker:1"), errors=[Unreachable("p", "no answer")]))
    assert str(failure) == f"worker:1 on w: it ended: exit 1\np: no answer\n  {HINT}"


def test_if_only_a_host_is_silent_its_error_is_reported():
    failure = root_cause(run_status(errors=[Unreachable("w", "no answer")]))
    assert str(failure) == f"w: no answer\n  {HINT}"
