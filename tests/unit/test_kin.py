"""Several tasks with their real supervisors: each ends as its run does, with nobody watching."""

from __future__ import annotations

import os
import signal

import pytest

from tfdeploy.agent import leases
from unit.kept import GO_ON, free_port
from unit.made import circle, eventually, policy

CRASH = "until_ready(); sys.exit(7)"
NEVER = policy(attempts=0, exits=[7])


@pytest.fixture
def run(keep):
    """Begins ps:0 and worker:1, which go on, and the chief, worker:0, with a script of its own.
    `changes` are those of every task."""

    def begin(chief, ps=GO_ON, worker=GO_ON, circled=None, **changes):
        known = circle(port=free_port(), secret=os.urandom(8).hex(), **(circled or {}))
        scripts = {"ps": (0, ps), "worker": (1, worker), "chief": (0, chief)}
        return [
            keep(script, job="ps" if job == "ps" else "worker", index=index, circle=known,
                 **{"policy": NEVER, "linger_s": 0.4, **changes})
            for job, (index, script) in scripts.items()
            if script is not None
        ]  # fmt: skip

    return begin


def ends(tasks):
    """How each of the tasks ended: (state, reason, cause)."""
    ended = [task.ends() for task in tasks]
    return [(state.state, state.reason, state.cause) for state in ended]


# A chief that waits until the others are READY: then its end is told to all of them.
WAIT = "until_ready(); until('READY', 'ps-0', 'worker-1'); "


def test_when_the_chief_succeeds_the_others_are_ended(run):
    ps, worker, chief = ends(run(WAIT))
    assert chief == ("SUCCEEDED", "exit 0", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 succeeded, killed by SIGTERM", "")
    assert ps == worker


def test_a_worker_that_ends_by_itself_within_its_time_has_succeeded(run):
    tasks = run(WAIT, worker="until_ready(); until('SUCCEEDED', 'worker-0')", linger_s=60.0)
    ps, worker, chief = ends(tasks)
    assert (worker, chief) == (("SUCCEEDED", "exit 0", ""),) * 2
    assert ps[0] == "STOPPED"


def test_a_worker_that_crashes_after_the_end_is_not_begun_again(run):
    # A second later its supervisor has heard of it.
    crash = "until_ready(); until('SUCCEEDED', 'worker-0'); time.sleep(1.0); sys.exit(7)"
    tasks = run(WAIT, worker=crash, linger_s=60.0, policy=policy(exits=[7]))
    ps, worker, chief = ends(tasks)
    assert (worker, chief[0]) == (("FAILED", "exit 7", ""), "SUCCEEDED")
    assert ps[0] == "STOPPED"


def test_a_ps_outlives_the_workers(run):
    told = (
        "def ended(*_): open('../../order', 'a').write('{}'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, ended); "
    )
    tasks = run(WAIT, ps=told.format("ps ") + GO_ON, worker=told.format("worker ") + GO_ON)
    ends(tasks)
    with open(os.path.join(os.path.dirname(tasks[0].task_dir), "order")) as order:
        assert order.read() == "worker ps "


def test_when_the_chief_fails_nobody_waits(run):
    ps, worker, chief = ends(run(WAIT + "sys.exit(7)", linger_s=3600.0))
    assert chief == ("FAILED", "exit 7", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 failed, killed by SIGTERM", "")
    assert ps == worker


def test_when_a_task_fails_without_which_the_chief_can_not_go_on_the_chief_fails(run):
    ps, worker, chief = ends(run(GO_ON, ps=CRASH))
    assert ps == ("FAILED", "exit 7", "")
    assert chief == ("FAILED", "ps:0 failed: exit 7", "ps:0")
    assert worker[1] == "the run has ended: worker:0 failed, killed by SIGTERM"


def test_a_chief_hears_of_a_failure_that_came_before_it(keep):
    known = circle(port=free_port(), tasks=["ps:0", "worker:0"])
    ps = keep("sys.exit(7)", job="ps", circle=known)
    assert ps.comes_to("FAILED")
    chief = keep(GO_ON, circle=known)
    assert chief.ends().reason == "ps:0 failed: exit 7, before it was ever READY"
    assert ps.ends().state == "FAILED"


def test_who_can_not_say_its_last_word_is_stopped_nevertheless(keep):
    ps = keep("sys.exit(7)", job="ps", circle=circle(port=free_port()))
    assert ps.comes_to("FAILED")
    ps.stop()
    assert ps.ends().state == "FAILED"


def test_when_any_other_task_fails_the_chief_goes_on(run):
    ps, worker, chief = run(GO_ON, worker=CRASH)
    assert worker.ends().state == "FAILED"
    assert chief.comes_to("READY")
    assert ps.comes_to("READY")
    chief.stop()
    assert chief.ends().state == "STOPPED"


def test_a_needed_task_that_comes_back_costs_the_chief_nothing(run):
    ps, _, chief = run(
        GO_ON, ps="first = attempt() == 1; until_ready(); first and sys.exit(7); time.sleep(60)",
        policy=policy(delay_s=0.2, exits=[7]),
    )  # fmt: skip
    assert ps.comes_to("READY", restarts=1)
    assert chief.comes_to("READY", restarts=0)


def test_a_run_that_has_lasted_long_enough_is_stopped(run):
    ps, worker, chief = ends(run(GO_ON, max_duration_s=1.0))
    assert chief == ("STOPPED", "max_duration_s, 1 s, is over, killed by SIGTERM", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 was stopped, killed by SIGTERM", "")
    assert ps == worker


def test_who_waits_to_be_begun_again_ends_with_the_run_too(run):
    wait = "until_ready(); until('BACKOFF', 'worker-1'); sys.exit(3)"
    _, worker, chief = run(wait, worker=CRASH, policy=policy(delay_s=60.0, exits=[7]))
    assert chief.ends().state == "FAILED"
    ended = worker.ends()
    assert (ended.state, ended.exit) == ("STOPPED", 7)
    assert ended.reason == "the run has ended: worker:0 failed"


# Alone


@pytest.mark.parametrize("name", ["ps", "worker"])
def test_who_never_hears_of_the_chief_gives_up(run, name):
    (task,) = run(
        None, **{"ps": None, "worker": None, name: GO_ON}, circled={"orphan_timeout_s": 0.8}
    )
    assert task.comes_to("STOPPED")
    assert task.state.reason.startswith("nothing was heard of worker:0 for 1 s, ")
    assert (task.state.cause, task.is_alive()) == ("worker:0", False)


@pytest.mark.slow
def test_a_chief_that_never_hears_of_its_ps_gives_up(run):
    (chief,) = run(GO_ON, ps=None, worker=None, circled={"orphan_timeout_s": 0.8})
    assert ends([chief]) == [("FAILED", "nothing was heard of ps:0 for 1 s", "ps:0")]


@pytest.mark.slow
def test_when_a_chiefs_supervisor_is_killed_the_others_end_in_time(run):
    ps, worker, chief = run(GO_ON, circled={"orphan_timeout_s": 3.0})
    assert all(task.comes_to("READY") for task in (ps, worker, chief))
    chief.process.kill()
    assert all(task.comes_to("STOPPED") for task in (ps, worker))
    assert {task.state.cause for task in (ps, worker)} == {"worker:0"}


# The last words


def test_a_chief_that_was_asked_to_stop_waits_for_nobody(run):
    ps, worker, chief = run(GO_ON)
    assert all(task.comes_to("READY") for task in (ps, worker, chief))
    chief.stop()
    assert chief.ends().reason == "as asked, killed by SIGTERM"
    assert ps.is_alive()
    assert worker.is_alive()


def test_a_chief_frees_what_it_holds_before_the_others_have_ended(keep):
    known = circle(
        port=free_port(), secret=os.urandom(8).hex(), tasks=["worker:0", "worker:1"], needed=[]
    )
    chief = keep("until_ready()", circle=known, lease="gpu/of-this-chief")
    assert chief.comes_to("SUCCEEDED")
    assert eventually(lambda: leases.holder("gpu/of-this-chief") is None)
    assert chief.process.poll() is None  # it still tells worker:1, which has yet to ask
    chief.process.send_signal(signal.SIGTERM)
    assert chief.ends().state == "SUCCEEDED"
