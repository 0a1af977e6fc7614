"""A task is stopped, whatever it is doing; and nothing of it outlives its supervisor."""

from __future__ import annotations

import os
import signal

import pytest

from tfdeploy.agent import stop
from unit.kept import GO_ON, children, is_alive
from unit.made import circle, eventually, policy

ALONE = circle(tasks=["worker:0"], needed=[])
CRASH = "attempt(); until_ready(); sys.exit(7)"


def alone(keep, code, delay_s=60.0, **changes):
    return keep(code, circle=ALONE, policy=policy(delay_s=delay_s, exits=[7, "signals"]), **changes)


def frozen(keep, code, **changes):
    """A task that was READY, and its supervisor, which looks away for now."""
    task = alone(keep, code, **changes)
    assert task.comes_to("READY")
    task.process.send_signal(signal.SIGSTOP)
    return task


# Stopped


def test_a_task_is_stopped(keep):
    task = alone(keep, GO_ON)
    assert task.comes_to("READY")
    task.stop()
    ended = task.ends()
    assert (ended.state, ended.exit) == ("STOPPED", -signal.SIGTERM)
    assert ended.reason == "as asked, killed by SIGTERM"
    assert not is_alive(ended.pid)


def test_a_task_that_saves_at_a_stop_is_given_its_time(keep):
    code = (
        "def save(*_): time.sleep(0.2); print('saved', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save); " + GO_ON
    )
    task = alone(keep, code, stop_grace_s=10.0)
    assert task.comes_to("READY")
    task.stop()
    assert (task.ends().reason, task.log) == ("as asked, exit 0", "saved\n")


def test_a_task_that_was_stopped_by_a_signal_is_stopped_for_good(keep):
    task = alone(keep, GO_ON)
    assert task.comes_to("READY")
    os.kill(task.state.pid, signal.SIGSTOP)
    task.stop()
    ended = task.ends()
    assert (ended.state, is_alive(ended.pid)) == ("STOPPED", False)


def test_a_task_that_waits_to_be_begun_again_is_stopped_at_once(keep):
    task = alone(keep, CRASH)
    assert task.comes_to("BACKOFF")
    task.stop()
    ended = task.ends()
    assert (ended.state, ended.reason, ended.exit, task.attempts) == ("STOPPED", "as asked", 7, 1)


@pytest.mark.parametrize("delay_s", [60.0, 0.0])
def test_a_stop_that_comes_with_the_tasks_own_end_is_heard(keep, delay_s):
    task = frozen(keep, "attempt(); " + GO_ON, delay_s=delay_s)
    os.kill(task.state.pid, signal.SIGKILL)
    task.stop()
    task.process.send_signal(signal.SIGCONT)
    assert task.ends().state == "STOPPED"


def test_a_task_that_had_succeeded_when_the_stop_came_has_succeeded(keep):
    task = frozen(keep, "time.sleep(0.3)", port=None)
    assert eventually(lambda: not task.is_alive())
    task.stop()
    task.process.send_signal(signal.SIGCONT)
    assert (task.ends().state, task.state.exit) == ("SUCCEEDED", 0)


def test_the_verb_stops_a_task_and_verifies_it(keep):
    task = alone(keep, GO_ON)
    assert task.comes_to("READY")
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"])
    assert (answer["state"], answer["survivors"]) == ("STOPPED", [])
    assert (task.ends().state, task.is_alive()) == ("STOPPED", False)


# Around a supervisor's own end


def test_a_task_dies_with_its_supervisor(keep):
    task = alone(keep, GO_ON)
    assert task.comes_to("READY")
    task.process.kill()
    assert eventually(lambda: not task.is_alive())


def test_what_is_left_of_a_killed_supervisors_task_is_swept(keep):
    task = alone(keep, "print(subprocess.Popen(['sleep', '60']).pid, flush=True); " + GO_ON)
    assert task.comes_to("READY")
    task.process.kill()
    task.process.wait()
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"])
    assert (answer["state"], answer["survivors"]) == ("STOPPED", [])
    assert not is_alive(int(task.log))
    assert task.state.reason == "stopped after its supervisor was lost"


def test_what_a_living_task_leaves_behind_does_not_stay_a_zombie(keep):
    task = alone(
        keep,
        "for _ in range(20): subprocess.call(['sh', '-c', 'sleep 0.01 & true'])\n" + GO_ON,
    )
    assert task.comes_to("READY")
    assert eventually(lambda: [*children(task.process.pid)] == [task.state.pid])


def test_a_folder_that_is_gone_is_told(keep):
    task = alone(keep, CRASH, delay_s=1.0)
    assert task.comes_to("BACKOFF")
    work = os.path.join(task.task_dir, "work")
    os.rename(work, work + "-gone")
    ended = task.ends()
    assert ended.state == "FAILED"
    assert "can't be run: No such file or directory" in ended.reason


def test_a_task_that_was_begun_anew_is_left_alone_by_who_began_it_before(keep):
    task = alone(keep, GO_ON)
    assert task.comes_to("READY")
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"], launched="another")
    assert (answer["state"], answer["survivors"]) == ("READY", [])
    assert (task.state.state, task.is_alive()) == ("READY", True)
    (answer,) = stop.stop("p", task.launch.run, ["worker:0"], task.launch.circle.name)
    assert answer["state"] == "STOPPED"
