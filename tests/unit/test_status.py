"""A task as its host sees it: what its supervisor wrote, unless that one is gone."""

from __future__ import annotations

import os
import time

import pytest

from tfdeploy.agent import lock, paths, records, status
from tfdeploy.agent.records import TaskState
from unit.made import launch

KILLED = "its supervisor was killed"


@pytest.fixture
def task(root):
    """The directory of worker:0, started and with a log of three lines."""
    return started("worker:0")


def started(name, **changes):
    directory = paths.task("p", "r", name)
    os.makedirs(directory)
    os.makedirs(paths.logs("p", "r"), exist_ok=True)
    job, index = name.split(":")
    order = launch(job=job, index=int(index), **changes)
    records.write(paths.launch(directory), records.to_json(order))
    with open(paths.log("p", "r", name), "w") as log:
        log.write("one\ntwo\nthree\n")
    return directory


def wrote(directory, state, **fields):
    record = TaskState(state, fields.pop("since", time.time()), **fields)
    records.write(paths.state(directory), records.to_json(record))


def test_a_run_that_is_not_here_has_no_tasks(root):
    assert status.status("p", "r", 0) == []


def test_every_task_of_the_run_is_reported(task):
    started("ps:0")
    assert {report.task for report in status.status("p", "r", 0)} == {"worker:0", "ps:0"}


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_what_has_ended_stays_so_without_its_supervisor(task, state):
    wrote(task, state, pid=7, exit=3, reason="why", since=time.time() - 60)
    report = status.report("p", "r", "worker:0")
    assert (report.state, report.pid, report.exit, report.reason) == (state, 7, 3, "why")
    assert 60 <= report.age_s < 70


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "READY", "BACKOFF"])
def test_what_has_not_ended_is_lost_without_its_supervisor(task, state):
    wrote(task, state, pid=7, restarts=2, exit=1, reason="exit 1; restart 2 of 10")
    report = status.report("p", "r", "worker:0")
    assert (report.state, report.pid, report.restarts, report.exit) == ("LOST", 7, 2, 1)
    assert report.reason == KILLED


@pytest.mark.parametrize(
    ("boot", "reason"), [("another", "the host restarted"), (paths.boot(), KILLED), ("", KILLED)]
)
def test_a_restart_of_the_host_is_told_from_a_killed_supervisor(task, boot, reason):
    wrote(task, "READY", boot=boot)
    assert status.report("p", "r", "worker:0").reason == reason


def test_who_made_a_task_end_is_told(task):
    wrote(task, "STOPPED", cause="worker:1")
    assert status.report("p", "r", "worker:0").cause == "worker:1"


def test_what_has_not_ended_goes_on_with_its_supervisor(task):
    wrote(task, "RUNNING", pid=7)
    held = lock.take(task)
    try:
        assert status.report("p", "r", "worker:0").state == "RUNNING"
    finally:
        os.close(held)


def test_a_task_whose_supervisor_never_wrote_is_lost(task):
    assert status.report("p", "r", "worker:0").state == "LOST"


def test_a_clock_that_was_set_back_gives_no_negative_age(task):
    wrote(task, "FAILED", since=time.time() + 3600)
    assert status.report("p", "r", "worker:0").age_s == 0


@pytest.mark.parametrize(
    ("tail", "lines"),
    [(0, []), (1, ["three"]), (2, ["two", "three"]), (9, ["one", "two", "three"])],
)
def test_the_last_lines_of_a_log_are_reported(task, tail, lines):
    assert status.report("p", "r", "worker:0", tail).log == lines


def test_a_log_that_is_not_there_has_no_lines(task):
    os.remove(paths.log("p", "r", "worker:0"))
    assert status.report("p", "r", "worker:0", 5).log == []


def test_health_is_asked_of_what_runs_and_listens(root):
    running = started("ps:0", port=1)
    quiet = started("evaluator:0")
    ended = started("worker:1", port=1)
    held = [lock.take(running), lock.take(quiet)]
    wrote(running, "RUNNING")
    wrote(quiet, "READY")
    wrote(ended, "FAILED")
    told = {report.task: report.health for report in status.status("p", "r", 0)}
    for each in held:
        os.close(each)
    assert told == {"ps:0": "NOT_LISTENING", "evaluator:0": "-", "worker:1": "-"}


def test_whether_training_moves_is_told_of_what_runs(task):
    wrote(task, "READY")
    held = lock.take(task)
    saves = os.path.join(paths.work(task), "checkpoints")
    os.makedirs(saves)
    with open(os.path.join(saves, "events.out.tfevents.1"), "w"):
        pass
    (told,) = status.status("p", "r", 0)
    os.close(held)
    assert (told.step, told.step_age_s) == (None, None)
    assert 0 <= told.quiet_s < 60


def test_nothing_of_it_is_told_of_what_has_ended(task):
    wrote(task, "SUCCEEDED")
    (told,) = status.status("p", "r", 0)
    assert (told.health, told.step, told.quiet_s) == ("-", None, None)
