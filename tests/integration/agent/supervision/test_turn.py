"""Runs that wait in the queue of this machine, under real supervisors. Names of leases stand for
GPUs of several hosts."""

from __future__ import annotations

import os
import secrets
import signal

import pytest
from support.builders import (
    change_launch,
    end_processes,
    eventually,
    make_heartbeat_settings,
    start_python,
)
from support.ports import free_port

from integration.agent.supervised_task import PACKAGE, SupervisedTask
from tfdeploy.agent import paths
from tfdeploy.agent.machine import leases
from tfdeploy.agent.queue import places, report
from tfdeploy.shared.records import HIGH, NORMAL, PROCESS

SLEEP = "time.sleep(600)"
SOON_S = 4.0  # after this silence, a run of which a supervisor is lost lets others pass


@pytest.fixture
def gpus():
    """Two resources that no other test uses."""
    return [f"gpu/GPU-{secrets.token_hex(4)}" for _ in range(2)]


@pytest.fixture
def submit(root):
    """Start the supervisors of a run whose tasks, worker:0 and so on, wait for these resources;
    worker:0 is the chief."""
    tasks = []

    def start(
        submitted, *resources, priority=NORMAL, reverse=False, orphan_timeout_s=60.0, limit_s=None
    ):
        names = [f"worker:{index}" for index, _ in enumerate(resources)]
        settings = make_heartbeat_settings(
            port=free_port(), secret=os.urandom(8).hex(), tasks=names, needed=names[1:],
            orphan_timeout_s=orphan_timeout_s,
        )  # fmt: skip
        run = secrets.token_hex(4)
        in_order = [*enumerate(resources)]
        started = [
            SupervisedTask(
                root, SLEEP, run=run, index=index, heartbeat=settings, port=None, ready=PROCESS,
                submitted=submitted, priority=priority, gpus=[0], waits_for=[resource],
                max_duration_s=limit_s,
            )
            for index, resource in (reversed(in_order) if reverse else in_order)
        ]  # fmt: skip
        tasks.extend(started)
        return sorted(started, key=lambda task: task.launch.index)

    yield start
    for task in tasks:
        task.kill()


def have_started(tasks):
    return eventually(lambda: all(task.state.state == "READY" for task in tasks))


def states(tasks):
    return [task.state.state for task in tasks]


def holds(task, resource):
    """Return whether a task that waits holds a resource in time."""
    supervisor = task.process.pid

    def is_held():
        holder = leases.holder(resource)
        return holder is not None and holder.pid == supervisor

    return eventually(is_held)


def test_two_runs_that_need_the_same_hosts_start_one_after_the_other(submit, gpus):
    first = submit(1, *gpus)
    second = submit(2, *gpus, reverse=True)
    third = submit(3, *reversed(gpus))
    for run, others in ((first, [*second, *third]), (second, third), (third, [])):
        assert have_started(run)
        assert set(states(others)) <= {"QUEUED"}
        for task in run:
            task.stop()
        assert {task.wait_for_end().state for task in run} == {"STOPPED"}


def test_a_run_with_a_higher_priority_gets_what_one_that_waits_holds(submit, gpus):
    held = leases.acquire(gpus[1:])
    big = submit(1, *gpus)
    assert holds(big[0], gpus[0])
    assert have_started(submit(2, gpus[0], priority=HIGH))
    assert states(big) == ["QUEUED", "QUEUED"]
    leases.release(held)
    assert holds(big[1], gpus[1])


def test_a_smaller_run_waits_for_a_larger_one_that_came_first(submit, gpus):
    held = leases.acquire(gpus[1:])
    big, small = submit(1, *gpus), submit(2, gpus[0])
    assert holds(big[0], gpus[0])
    assert report.explain(small[0].launch).startswith("second for GPU 0, behind ")
    leases.release(held)
    assert have_started(big)
    assert states(small) == ["QUEUED"]


def test_who_waits_sees_when_the_run_ends_that_has_the_gpu(submit, gpus):
    first = submit(1, gpus[0], limit_s=7500.0)
    assert have_started(first)
    second = submit(2, gpus[0])
    reason = report.explain(second[0].launch)
    assert reason.startswith("GPU 0 is taken by ")
    assert reason.endswith(", ends at the latest in 2h 5m")
    assert report.explain(submit(3, gpus[0])[0].launch).endswith(", ends at the latest in 2h 5m")


def test_a_run_without_one_of_its_supervisors_lets_others_pass(submit, gpus):
    held = leases.acquire([gpus[1]])
    run = submit(1, *gpus, orphan_timeout_s=SOON_S)
    assert holds(run[0], gpus[0])
    run[1].process.kill()
    assert have_started(submit(2, gpus[0]))
    assert states(run)[0] == "QUEUED"
    assert report.explain(run[0].launch) == report.AWAY
    leases.release(held)


def test_a_run_leaves_the_queue_when_its_chiefs_supervisor_is_killed(submit, gpus):
    held = leases.acquire([gpus[0]])
    run = submit(1, *gpus, orphan_timeout_s=SOON_S)
    assert holds(run[1], gpus[1])
    run[0].process.kill()
    assert have_started(submit(2, gpus[1]))
    assert eventually(lambda: states(run)[1] == "STOPPED")
    leases.release(held)


def test_a_run_whose_host_answers_again_has_its_old_place(submit, gpus):
    held = leases.acquire(gpus[1:])
    run = submit(1, *gpus, orphan_timeout_s=SOON_S)
    assert holds(run[0], gpus[0])
    run[1].process.send_signal(signal.SIGSTOP)
    passing = submit(2, gpus[0])
    assert have_started(passing)
    run[1].process.send_signal(signal.SIGCONT)
    later = submit(3, gpus[0])
    assert eventually(lambda: report.explain(later[0].launch).startswith("second for "))
    leases.release(held)
    passing[0].stop()
    assert have_started(run)
    assert states(later) == ["QUEUED"]


def test_a_task_that_is_stopped_while_its_run_starts_leaves_nothing(submit, gpus):
    held = leases.acquire(gpus[1:])
    run = submit(1, *gpus)
    assert holds(run[0], gpus[0])
    leases.release(held)
    for task in run:
        task.stop()
    assert {task.wait_for_end().state for task in run} == {"STOPPED"}
    assert [leases.holder(gpu) for gpu in gpus] == [None, None]
    assert not [place for place in places.all_places() if place.resource in gpus]


def test_a_stranger_with_the_name_of_a_place_ends_no_run(submit, gpus):
    held = leases.acquire(gpus[:1])
    [task] = submit(1, gpus[0])
    moved = change_launch(task.launch, priority=HIGH)
    stranger = leases.acquire([place.lease for place in places.places_of(moved, HIGH)])
    report.move("p", task.launch.run, "worker:0", HIGH)
    leases.release(held)
    assert have_started([task])
    leases.release(stranger)


def test_a_run_whose_disk_fails_keeps_its_place_and_starts(submit, gpus):
    held = leases.acquire(gpus[:1])
    [task] = submit(1, gpus[0])
    [later] = submit(2, gpus[0])
    os.unlink(paths.launch(task.task_dir))
    leases.release(held)
    assert have_started([task])
    assert states([later]) == ["QUEUED"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
def test_fifty_runs_of_five_users_have_one_order_and_nobody_can_take_a_place(gpus):
    code = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.queue import places
os.setuid(int(sys.argv[3]))
own = [places.Place(sys.argv[2], n % 2, 1000 + n, "r{:02d}".format(n), "worker:0")
          for n in map(int, sys.argv[4:])]
held = places.enter(own)
print("waits", flush=True)
time.sleep(600)
"""
    numbers = [[*range(user, 50, 5)] for user in range(5)]
    started = [
        start_python(code, PACKAGE, gpus[0], str(70_000 + user), *map(str, own))
        for user, own in enumerate(numbers)
    ]
    try:
        found = [place for place in places.all_places() if place.resource == gpus[0]]
        expected = sorted(range(50), key=lambda n: (n % 2, n))
        assert [place.run for place in found] == [f"r{n:02d}" for n in expected]
        users = {places.holder(place).user for place in found}
        assert users == {str(70_000 + user) for user in range(5)}
        with pytest.raises(leases.ResourceTaken):
            places.enter(found[:1])
        assert len(places.ahead_of(found[-1], found)) == 49
    finally:
        end_processes(started)
    assert not [place for place in places.all_places() if place.resource == gpus[0]]
