"""A task's status is what its supervisor write_state, unless the supervisor is gone."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest
from support.builders import make_launch

from tfdeploy.agent import paths
from tfdeploy.agent.machine import grpc_health, lock, process
from tfdeploy.agent.reports import status
from tfdeploy.shared import records
from tfdeploy.shared.records import TaskState

KILLED = "its supervisor was killed"


@pytest.fixture
def task(root):
    """The directory of worker:0, which was started and has a log of three lines."""
    return create_task("worker:0")


def create_task(name, **changes):
    directory = paths.task("p", "r", name)
    os.makedirs(directory)
    os.makedirs(paths.logs("p", "r"), exist_ok=True)
    job, index = name.split(":")
    order = make_launch(job=job, index=int(index), **changes)
    records.write(paths.launch(directory), records.to_json(order))
    with open(paths.log("p", "r", name), "w") as log:
        log.write("one\ntwo\nthree\n")
    return directory


def write_state(directory, state, **fields):
    record = TaskState(state, fields.pop("since", time.time()), **fields)
    records.write(paths.state(directory), records.to_json(record))


def test_a_run_that_this_host_does_not_have_reports_no_tasks(root):
    assert status.status("p", "r", 0).tasks == []


def test_every_task_of_the_run_is_reported(task):
    create_task("ps:0")
    assert {report.task for report in status.status("p", "r", 0).tasks} == {"worker:0", "ps:0"}


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_an_ended_task_keeps_its_state_without_its_supervisor(task, state):
    write_state(task, state, pid=7, exit=3, reason="exit 3", since=time.time() - 60)
    report = status.report("p", "r", "worker:0")
    assert (report.state, report.pid, report.exit, report.reason) == (state, 7, 3, "exit 3")
    assert 60 <= report.age_s < 70


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "READY", "BACKOFF"])
def test_a_task_that_has_not_ended_is_lost_without_its_supervisor(task, state):
    write_state(task, state, pid=7, restarts=2, exit=1, reason="exit 1; restart 2 of 10")
    report = status.report("p", "r", "worker:0")
    assert (report.state, report.pid, report.restarts, report.exit) == ("LOST", 7, 2, 1)
    assert report.reason == KILLED


@pytest.mark.parametrize(
    ("boot", "reason"), [("another", "the host restarted"), (paths.boot_id(), KILLED), ("", KILLED)]
)
def test_a_lost_task_reports_a_host_restart_or_a_killed_supervisor(task, boot, reason):
    write_state(task, "READY", boot=boot)
    assert status.report("p", "r", "worker:0").reason == reason


@pytest.mark.parametrize(
    ("before", "processes", "after"),
    [("RUNNING", [], "STOPPED"), ("RUNNING", [7], "LOST"), ("QUEUED", [], "LOST")],
)
def test_a_task_on_a_read_only_disk_has_stopped_if_it_had_started_and_has_no_processes(
    task, monkeypatch, before, processes, after
):
    write_state(task, before)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    left = {"p/r/worker:0": processes}
    monkeypatch.setattr(process, "task_processes", left.__getitem__)
    report = status.report("p", "r", "worker:0")
    assert (report.state, report.reason == status.NOT_STORED) == (after, after == "STOPPED")


def test_a_queued_task_whose_host_restarted_says_how_it_is_submitted_again(task):
    write_state(task, "QUEUED", boot="another")
    report = status.report("p", "r", "worker:0")
    assert report.state == "LOST"
    assert report.reason == (
        "the host restarted, so the run has left the queue; tfdeploy resume r --queue submits it "
        "again"
    )


def test_the_task_that_caused_the_end_is_reported(task):
    write_state(task, "STOPPED", cause="worker:1")
    assert status.report("p", "r", "worker:0").cause == "worker:1"


def test_a_task_with_a_living_supervisor_keeps_its_state(task):
    write_state(task, "RUNNING", pid=7)
    lock_descriptor = lock.acquire(task)
    try:
        assert status.report("p", "r", "worker:0").state == "RUNNING"
    finally:
        os.close(lock_descriptor)


def test_a_task_whose_supervisor_never_wrote_a_state_is_lost(task):
    assert status.report("p", "r", "worker:0").state == "LOST"


def test_an_age_is_not_negative_after_the_clock_was_set_back(task):
    write_state(task, "FAILED", since=time.time() + 3600)
    assert status.report("p", "r", "worker:0").age_s == 0


@pytest.mark.parametrize(
    ("tail", "lines"),
    [(0, []), (1, ["three"]), (2, ["two", "three"]), (9, ["one", "two", "three"])],
)
def test_the_last_lines_of_a_log_are_reported(task, tail, lines):
    assert status.report("p", "r", "worker:0", tail).log == lines


def test_a_missing_log_has_no_lines(task):
    os.remove(paths.log("p", "r", "worker:0"))
    assert status.report("p", "r", "worker:0", 5).log == []


def test_health_is_probed_only_for_tasks_that_run_and_have_a_port(root):
    running = create_task("ps:0", port=1)
    without_port = create_task("evaluator:0")
    ended = create_task("worker:1", port=1)
    lock_descriptors = [lock.acquire(running), lock.acquire(without_port)]
    write_state(running, "RUNNING")
    write_state(without_port, "READY")
    write_state(ended, "FAILED")
    health = {report.task: report.health for report in status.status("p", "r", 0).tasks}
    for descriptor in lock_descriptors:
        os.close(descriptor)
    assert health == {"ps:0": "NOT_LISTENING", "evaluator:0": "-", "worker:1": "-"}


def test_training_progress_is_reported_for_running_tasks(task):
    write_state(task, "READY")
    lock_descriptor = lock.acquire(task)
    saves = os.path.join(paths.work(task), "checkpoints")
    os.makedirs(saves)
    with open(os.path.join(saves, "events.out.tfevents.1"), "w"):
        pass
    (report,) = status.status("p", "r", 0).tasks
    os.close(lock_descriptor)
    assert (report.step, report.step_age_s) == (None, None)
    assert 0 <= report.quiet_s < 60


def test_training_progress_is_not_reported_for_ended_tasks(task):
    write_state(task, "SUCCEEDED")
    (report,) = status.status("p", "r", 0).tasks
    assert (report.health, report.step, report.quiet_s) == ("-", None, None)


@pytest.mark.parametrize(
    ("answer", "health"), [("-", "PAUSED"), ("READY", "PAUSED"), ("FROZEN", "FROZEN")]
)
def test_a_task_that_a_signal_has_stopped_is_named(task, monkeypatch, answer, health):
    monkeypatch.setattr(grpc_health, "task_health", lambda launch: answer)
    stat, children = {7: b"S 1", 8: b"T 7"}, {7: b"8"}
    monkeypatch.setattr(process, "stat", lambda pid: stat[pid].split())
    monkeypatch.setattr(
        process, "read", lambda pid, name: children.get(pid, b"") if "children" in name else b""
    )
    write_state(task, "READY", pid=7)
    monkeypatch.setattr(lock, "holder", lambda directory: 1)
    report = status.report("p", "r", "worker:0", probe=True)
    assert report.health == health
    assert report.reason == "a signal has stopped pid 8; kill -CONT 8 continues it"


def test_of_versions_only_a_regular_file_counts(task):
    write_state(task, "SUCCEEDED")
    with open(paths.versions(task), "w") as file:
        file.write('{"versions": {"torch": "2.1"}}\n')
    assert status.report("p", "r", "worker:0").versions == {"torch": "2.1"}
    os.remove(paths.versions(task))
    os.mkfifo(paths.versions(task))
    assert status.report("p", "r", "worker:0").versions == {}
