"""Stopping a task in every state; and no process of a task outlives its supervisor."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.builders import eventually, make_heartbeat_settings, make_policy

from integration.agent.supervised_task import RUN_FOREVER, RUN_UNTIL_LET_END, children, is_alive
from tfdeploy.agent.runs import start_lease, stop

ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
CRASH = "attempt(); become_ready(); sys.exit(7)"


def run_alone(supervise, code, delay_s=60.0, **changes):
    return supervise(
        code, heartbeat=ALONE, policy=make_policy(delay_s=delay_s, exits=[7, "signals"]), **changes
    )


def with_paused_supervisor(supervise, code, **changes):
    """Start a task, and pause its supervisor when the task is READY."""
    task = run_alone(supervise, code, **changes)
    assert task.reaches("READY")
    task.process.send_signal(signal.SIGSTOP)
    return task


# Stopping


def test_a_running_task_is_stopped(supervise):
    task = run_alone(supervise, RUN_FOREVER)
    assert task.reaches("READY")
    task.stop()
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("STOPPED", -signal.SIGTERM)
    assert ended.reason == "on request; stopped by SIGTERM"
    assert not is_alive(ended.pid)


def test_a_task_that_saves_on_sigterm_gets_its_grace_time(supervise):
    code = (
        "def save(*_): time.sleep(0.2); print('saved', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save); " + RUN_FOREVER
    )
    task = run_alone(supervise, code, stop_grace_s=10.0)
    assert task.reaches("READY")
    task.stop()
    assert (task.wait_for_end().reason, task.log) == ("on request; exit 0", "saved\n")


def test_a_task_suspended_by_sigstop_is_stopped(supervise):
    task = run_alone(supervise, RUN_FOREVER)
    assert task.reaches("READY")
    os.kill(task.state.pid, signal.SIGSTOP)
    task.stop()
    ended = task.wait_for_end()
    assert (ended.state, is_alive(ended.pid)) == ("STOPPED", False)


def test_a_task_in_backoff_is_stopped_at_once(supervise):
    task = run_alone(supervise, CRASH)
    assert task.reaches("BACKOFF")
    task.stop()
    ended = task.wait_for_end()
    assert (ended.state, ended.reason, ended.exit, task.attempts) == ("STOPPED", "on request", 7, 1)


@pytest.mark.parametrize("delay_s", [60.0, 0.0])
def test_a_stop_at_the_same_moment_as_the_tasks_own_end_is_obeyed(supervise, delay_s):
    task = with_paused_supervisor(supervise, "attempt(); " + RUN_FOREVER, delay_s=delay_s)
    os.kill(task.state.pid, signal.SIGKILL)
    task.stop()
    task.process.send_signal(signal.SIGCONT)
    assert task.wait_for_end().state == "STOPPED"


def test_a_task_that_succeeded_before_the_stop_has_succeeded(supervise):
    task = with_paused_supervisor(supervise, RUN_UNTIL_LET_END, port=None)
    task.let_end()
    assert eventually(lambda: not task.is_alive())
    task.stop()
    task.process.send_signal(signal.SIGCONT)
    assert (task.wait_for_end().state, task.state.exit) == ("SUCCEEDED", 0)


def test_the_verb_stop_ends_a_task_and_verifies_it(supervise):
    task = run_alone(supervise, RUN_FOREVER)
    assert task.reaches("READY")
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"]).tasks
    assert (answer.state, answer.survivors) == ("STOPPED", [])
    assert (task.wait_for_end().state, task.is_alive()) == ("STOPPED", False)


# The end of a supervisor


def test_a_task_dies_with_its_supervisor(supervise):
    task = run_alone(supervise, RUN_FOREVER)
    assert task.reaches("READY")
    task.process.kill()
    assert eventually(lambda: not task.is_alive())


def test_stop_ends_the_processes_left_by_a_killed_supervisor(supervise):
    task = run_alone(
        supervise, "print(subprocess.Popen(['sleep', '60']).pid, flush=True); " + RUN_FOREVER
    )
    assert task.reaches("READY")
    assert eventually(lambda: task.log.endswith("\n"))  # the supervisor writes it in a thread
    task.process.kill()
    task.process.wait()
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"]).tasks
    assert (answer.state, answer.survivors) == ("STOPPED", [])
    assert not is_alive(int(task.log))
    assert task.state.reason == "stopped after its supervisor was lost"


def test_orphans_of_a_running_task_are_reaped(supervise):
    task = run_alone(
        supervise,
        "for _ in range(20): subprocess.call(['sh', '-c', 'sleep 0.01 & true'])\n" + RUN_FOREVER,
    )
    assert task.reaches("READY")
    assert eventually(lambda: [*children(task.process.pid)] == [task.state.pid])


def test_a_missing_work_folder_is_reported(supervise):
    code = "become_ready(); os.rename('../work', '../gone'); sys.exit(7)"
    ended = run_alone(supervise, code, delay_s=0.1).wait_for_end()
    assert ended.state == "FAILED"
    assert ": No such file or directory" in ended.reason


def test_stop_for_an_earlier_launch_does_not_stop_a_newer_one(supervise):
    task = run_alone(supervise, RUN_FOREVER)
    assert task.reaches("READY")
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"], launched="another").tasks
    assert (answer.state, answer.survivors) == ("READY", [])
    assert (task.state.state, task.is_alive()) == ("READY", True)
    (answer,) = stop.stop(
        "p", task.launch.run, ["worker:0"], task.launch.heartbeat.launch_name
    ).tasks
    assert answer.state == "STOPPED"


def test_a_stop_waits_for_a_start_of_the_run_and_stops_its_tasks(supervise, monkeypatch):
    """An agent whose controller has died may still be in the middle of a start."""
    monkeypatch.setattr(start_lease, "STOP_WAIT_S", 120.0)
    run = supervise("", index=1, heartbeat=ALONE).launch.run
    with ThreadPoolExecutor() as pool:
        with start_lease.hold(run):
            stopped = pool.submit(stop.stop, "p", run, ["worker:0"])
            task = supervise(RUN_FOREVER, heartbeat=ALONE)
            assert task.reaches("READY")
            assert not stopped.done()
        assert [each.state for each in stopped.result().tasks] == ["STOPPED"]
    assert task.wait_for_end().state == "STOPPED"


def test_a_stop_does_not_wait_for_long_for_a_start_that_hangs(supervise, monkeypatch):
    monkeypatch.setattr(start_lease, "STOP_WAIT_S", 0.1)
    task = supervise(RUN_FOREVER, heartbeat=ALONE)
    assert task.reaches("READY")
    with start_lease.hold(task.launch.run):
        assert stop.stop("p", task.launch.run, ["worker:0"]).tasks[0].state == "STOPPED"
