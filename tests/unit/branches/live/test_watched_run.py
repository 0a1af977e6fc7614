"""What is known of a run, from the samples of its hosts."""

from __future__ import annotations

import pytest

from tfdeploy.branches.live.watched_run import MAX_LINES
from tfdeploy.errors import AuthenticationFailed, Unreachable
from tfdeploy.hosts.events import HostIsBack
from tfdeploy.shared.outcome import SIGTERM_EXIT
from unit.branches.live.samples import host_use, keras, sample, task_use, watched_run

LOST = Unreachable("w", "no route to host")


def ended(watched, **chief):
    watched.take("p", sample(task_use("ps:0", state="STOPPED")), 0.0)
    workers = [task_use("worker:0", **chief), task_use("worker:1", state="STOPPED")]
    watched.take("w", sample(*workers), 0.0)
    return watched


def test_cpu_is_what_processes_used_between_two_samples():
    watched = watched_run()
    watched.take("w", sample(task_use(cpu_s=100.0), host=host_use(10.0, 50.0)), 0.0)
    task, host = watched.tasks["worker:0"], watched.hosts["w"]
    assert (task.cpu, host.cpu) == (None, None)
    watched.take("w", sample(task_use(cpu_s=103.0), host=host_use(12.0, 54.0)), 99.0)
    assert (task.cpu, host.cpu) == (1.5, 0.5)


def test_network_is_in_bytes_per_second():
    watched = watched_run()
    watched.take("w", sample(host=host_use(10.0, received=1000, sent=0)), 0.0)
    watched.take("w", sample(host=host_use(12.0, received=5000, sent=400)), 0.0)
    assert (watched.hosts["w"].received, watched.hosts["w"].sent) == (2000, 200)


def test_counters_that_restart_are_never_negative():
    watched = watched_run()
    watched.take("w", sample(task_use(cpu_s=9.0), host=host_use(1.0, 9.0, received=9)), 0.0)
    watched.take("w", sample(task_use(cpu_s=1.0), host=host_use(2.0, 1.0, received=1)), 0.0)
    host = watched.hosts["w"]
    assert (watched.tasks["worker:0"].cpu, host.cpu, host.received) == (0, 0, 0)


def test_a_lost_host_is_away_since_the_first_error_until_it_answers():
    watched = watched_run()
    watched.take("w", LOST, 5.0)
    watched.take("w", LOST, 9.0)
    assert (watched.hosts["w"].error, watched.hosts["w"].away_since) == (LOST, 5.0)
    watched.take("w", HostIsBack(), 12.0)
    assert watched.errors == []


def test_the_time_in_a_state_goes_on_between_samples():
    watched = watched_run()
    watched.take("w", sample(task_use(age_s=75.0)), 10.0)
    assert watched.tasks["worker:0"].age_s(15.0) == 80.0


def test_a_log_keeps_its_newest_lines():
    watched = watched_run()
    for _ in range(3):
        watched.take("w", sample(logs={"worker:0": ["x"] * 500}), 0.0)
    task = watched.tasks["worker:0"]
    assert (len(task.log), task.lines) == (MAX_LINES, 1500)


def test_the_training_is_the_chiefs_or_that_of_the_first_task_that_says_anything():
    watched = watched_run()
    watched.take("w", sample(task_use("worker:1", log_progress=keras(1, 5))), 0.0)
    assert watched.training.task == "worker:1"
    watched.take("w", sample(task_use("worker:0", log_progress=keras(1, 7))), 1.0)
    assert watched.training.task == "worker:0"
    assert watched.history.position.reached == 7


def test_what_the_training_reached_stays_known_after_its_end():
    watched = watched_run()
    watched.take("w", sample(task_use(log_progress=keras(10, 100))), 0.0)
    ended(watched, state="SUCCEEDED")
    assert watched.training.log_progress == keras(10, 100)


def test_only_the_chiefs_host_names_the_checkpoint():
    watched = watched_run()
    watched.take("p", sample(checkpoint="forged", checkpoint_age_s=1.0), 0.0)
    assert watched.checkpoint == ""
    watched.take("w", sample(checkpoint="model.ckpt-7", checkpoint_age_s=30.0), 100.0)
    assert (watched.checkpoint, watched.checkpoint_age_s(110.0)) == ("model.ckpt-7", 40.0)


@pytest.mark.parametrize(
    ("chief", "code"),
    [
        ({"state": "SUCCEEDED"}, 0),
        ({"state": "FAILED", "exit": 3}, 3),
        ({"state": "FAILED", "exit": -9}, 137),
        ({"state": "STOPPED"}, SIGTERM_EXIT),
        ({"state": "STOPPED", "planned": True}, 0),
        ({"state": "STOPPED", "cause": "ps:0"}, SIGTERM_EXIT),  # a command stopped ps:0
        ({"state": "LOST"}, 1),
    ],
)
def test_the_exit_code_is_that_of_the_run(chief, code):
    watched = ended(watched_run(), **chief)
    assert watched.has_ended
    assert watched.exit_code == code


def test_a_run_ends_when_every_task_has_ended():
    watched = watched_run()
    watched.take("w", sample(task_use("worker:0", state="SUCCEEDED")), 0.0)
    assert not watched.has_ended


def test_a_host_that_refuses_is_not_waited_for():
    watched = ended(watched_run(), state="SUCCEEDED")
    watched.take("p", AuthenticationFailed("p", "no key"), 0.0)
    assert watched.has_ended
    watched.take("w", AuthenticationFailed("w", "no key"), 0.0)
    assert not watched.has_ended
