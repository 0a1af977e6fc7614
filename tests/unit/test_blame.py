"""Who failed first, and what fell because of it."""

from __future__ import annotations

import pytest

from tfdeploy.agent.records import TaskReport
from tfdeploy.errors import FleetError, TaskFailed, Unreachable
from tfdeploy.run import Run
from tfdeploy.steps.blame import blame
from tfdeploy.steps.status import RunStatus, TaskStatus
from unit.made import inventory, plan

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2"
TASKS = ("ps:0", "worker:0", "worker:1")
HINT = "the logs are kept: tfdeploy logs --hosts /home/ada/hosts.toml --run r-1"


def report(task, state="FAILED", age_s=10.0, reason="exit 1", **changes):
    fields = {"pid": 7, "exit": 1, "restarts": 0, **changes}
    return TaskReport(task=task, state=state, age_s=age_s, reason=reason, **fields)


def seen(*reports, errors=(), hosts=HOSTS):
    """The status of a run of which these tasks have a report, as FAILED as it is said."""
    made = Run("r-1", "f00d", "a9e", inventory(hosts), plan(hosts))
    told = {each.task: each for each in reports}
    tasks = (TaskStatus(p, told.get(str(p.task))) for p in made.plan.placements)
    return RunStatus(made, tuple(tasks), tuple(errors))


def blamed(*reports, first="", hosts=HOSTS):
    """The one task that is blamed."""
    failure = blame(seen(*reports, hosts=hosts), first)
    assert isinstance(failure, FleetError)
    [one] = failure.errors
    assert isinstance(one, TaskFailed)
    return one


def test_the_task_that_failed_is_named_with_its_host_and_its_last_lines():
    one = blamed(report("worker:1", log=["Traceback", "Oops"]), report("ps:0", "READY"))
    assert (one.task, one.host, one.log) == ("worker:1", "w", ("Traceback", "Oops"))
    assert one.message == "it ended: exit 1"


def test_where_the_logs_are_is_said_once():
    failure = blame(seen(report("worker:1")))
    assert str(failure) == f"worker:1 on w: it ended: exit 1\n  {HINT}"


def test_how_often_it_was_begun_again_is_said():
    used = "exit 1; all 10 restarts within 3600 s are used up"
    message = blamed(report("worker:1", restarts=10, reason=used)).message
    assert message == f"it ended after 10 restarts: {used}"


def test_an_end_without_a_reason_is_told_by_its_exit():
    assert blamed(report("worker:1", reason="", exit=-9)).message == "it ended: killed by SIGKILL"


def test_a_lost_task_is_told_as_lost():
    lost = report("worker:1", "LOST", reason="the host restarted")
    assert blamed(lost).message == "it ended: LOST, the host restarted"


# Who was first


def test_who_failed_the_longest_ago_was_first():
    one = blamed(report("worker:0", age_s=3.0), report("worker:1", age_s=9.0))
    assert one.task == "worker:1"
    assert one.message == "it ended: exit 1\n  because of it ended worker:0 on w (exit 1)"


def test_many_that_fell_for_the_same_reason_are_told_together():
    fell = [report(f"worker:{index}", age_s=1.0) for index in range(1, 6)]
    odd = report("worker:6", age_s=2.0, reason="killed by SIGKILL")
    first = report("worker:0", age_s=9.0)
    one = blamed(first, odd, *fell, hosts="[hosts.w]\nworkers = 7")
    together = "worker:6 on w (killed by SIGKILL), worker:[1-5] on w (exit 1)"
    assert one.message == f"it ended: exit 1\n  because of it ended {together}"


def test_who_is_named_by_another_was_first_whatever_the_clocks_say():
    chief = report("worker:0", age_s=99.0, reason="ps:0 failed: exit 2", cause="ps:0")
    one = blamed(chief, report("ps:0", age_s=1.0, reason="exit 2"))
    assert (one.task, one.host) == ("ps:0", "p")
    assert one.message.endswith("\n  because of it ended worker:0 on w (ps:0 failed: exit 2)")


def test_who_was_seen_to_fail_first_was_first_whoever_is_named():
    chief = report("worker:0", cause="ps:0")
    assert blamed(chief, report("ps:0"), report("worker:1"), first="worker:1").task == "worker:1"


def test_who_failed_stands_before_who_was_only_stopped():
    stopped = report("worker:0", "STOPPED", age_s=99.0, reason="as asked")
    one = blamed(stopped, report("worker:1", age_s=1.0))
    assert one.task == "worker:1"
    assert one.message == "it ended: exit 1"


def test_where_nobody_failed_it_is_told_who_was_stopped():
    over = report("worker:0", "STOPPED", reason="max_duration_s, 5 s, is over, killed by SIGTERM")
    assert blamed(over, report("ps:0", "READY")).message == f"it ended: {over.reason}"


def test_a_lost_task_that_others_missed_is_blamed():
    gone = report("worker:0", "LOST", age_s=1.0, reason="its supervisor was killed")
    missing = report("ps:0", "STOPPED", age_s=5.0, cause="worker:0")
    assert blamed(gone, missing).task == "worker:0"


@pytest.mark.parametrize("state", ["READY", "RUNNING", "BACKOFF", "SUCCEEDED"])
def test_who_goes_on_or_succeeded_is_never_blamed(state):
    one = blamed(report("worker:0", state, age_s=99.0), report("worker:1"))
    assert (one.task, one.message) == ("worker:1", "it ended: exit 1")


def test_where_all_have_been_begun_again_that_is_told_of_the_chief():
    failure = blame(seen(report("worker:0", "READY"), report("ps:0", "READY")))
    assert failure.errors[0].task == "worker:0"
    assert "has somebody resumed the run meanwhile?" in failure.errors[0].message


# Hosts that say nothing


def test_hosts_that_do_not_answer_are_told_beside_it():
    failure = blame(seen(report("worker:1"), errors=[Unreachable("p", "no answer")]))
    assert str(failure) == f"worker:1 on w: it ended: exit 1\np: no answer\n  {HINT}"


def test_where_only_a_host_is_silent_that_is_what_is_told():
    failure = blame(seen(errors=[Unreachable("w", "no answer")]))
    assert str(failure) == f"w: no answer\n  {HINT}"
