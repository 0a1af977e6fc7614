"""A task under its real supervisor: begun, watched, begun again, and how each attempt ended."""

from __future__ import annotations

import os
import re
import signal
import socket

import pytest

from tfdeploy.agent import leases
from unit.kept import GO_ON, free_port, is_alive
from unit.made import circle, policy

ALONE = circle(tasks=["worker:0"], needed=[])
CRASH_ONCE = "first = attempt() == 1; until_ready(); sys.exit(7) if first else " + GO_ON
SOON = policy(delay_s=0.3, exits=[7, "signals"])
LATER = policy(delay_s=60.0, exits=[7, "signals"])


def alone(keep, code, **changes):
    return keep(code, **{"circle": ALONE, "policy": SOON, **changes})


# How it ends


@pytest.mark.parametrize(
    ("code", "state", "code_told", "reason"),
    [
        ("", "SUCCEEDED", 0, "exit 0"),
        ("sys.exit(7)", "FAILED", 7, "exit 7, before it was ever READY"),
        ("os.kill(os.getpid(), 9)", "FAILED", -9, "killed by SIGKILL, before it was ever READY"),
        ("until_ready(); sys.exit(3)", "FAILED", 3, "exit 3, which isn't retried"),
        ("until_ready()", "SUCCEEDED", 0, "exit 0"),
    ],
)
def test_an_end_that_no_restart_would_help_is_the_last(keep, code, state, code_told, reason):
    task = alone(keep, "attempt(); " + code)
    ended = task.ends()
    assert (ended.state, ended.exit, ended.reason) == (state, code_told, reason)
    assert (ended.restarts, task.attempts) == (0, 1)


def test_a_program_that_can_not_be_run_is_named(keep):
    ended = alone(keep, "", argv=["/no/program"]).ends()
    assert (ended.state, ended.exit) == ("FAILED", 127)
    assert ended.reason == "/no/program can't be run: No such file or directory"


def test_a_full_disk_is_told_and_not_tried_again(keep):
    task = alone(
        keep, "attempt(); until_ready(); raise OSError(28, 'No space left on device')",
        policy=policy(delay_s=0.1),
    )  # fmt: skip
    ended = task.ends()
    assert (ended.state, ended.exit, task.attempts) == ("FAILED", 1, 1)
    assert ended.reason == "exit 1: the disk is full; tfdeploy runs shows by what, prune makes room"
    assert "No space left on device" in task.log


def test_a_disk_that_was_full_before_is_not_why_a_later_attempt_ends(keep):
    task = alone(
        keep,
        "first = attempt() == 1; print('No space left on device' if first else '', flush=True)\n"
        "until_ready(); time.sleep(60) if first else sys.exit(7)",
        policy=policy(delay_s=0.1, exits=[7], attempts=1, stall_timeout_s=0.5),
    )
    assert task.ends().reason == "exit 7; all 1 restarts within 3600 s are used up"


def test_a_task_that_is_never_ready_is_ended(keep):
    ended = alone(keep, "time.sleep(60)", ready_timeout_s=0.3).ends()
    assert (ended.state, ended.reason) == ("FAILED", "not READY within 0.3 s")


def test_a_task_without_a_port_has_nothing_to_wait_for(keep):
    task = alone(keep, "time.sleep(60)", port=None)
    assert task.comes_to("READY")


def test_a_task_without_a_port_that_ends_too_soon_is_not_begun_again(keep):
    ended = alone(keep, "sys.exit(7)", port=None).ends()
    assert (ended.state, ended.exit) == ("FAILED", 7)
    assert re.fullmatch(r"exit 7, within [\d.]+ s of its start", ended.reason)


def test_a_task_without_a_port_is_begun_again_once_it_has_lived_for_a_while(keep):
    code = "first = attempt() == 1; time.sleep(1.0 if first else 60); sys.exit(7)"
    assert alone(keep, code, port=None).comes_to("READY", restarts=1)


def test_a_task_whose_process_is_enough_needs_not_listen(keep):
    task = alone(keep, "time.sleep(1)", ready="process", ready_timeout_s=0.1)
    assert task.comes_to("READY")
    assert task.ends().state == "SUCCEEDED"


def test_a_port_is_enough_where_that_is_asked(keep):
    listens = "listener = socket.create_server(('', int(os.environ['PORT']))); time.sleep(60)"
    assert alone(keep, listens, ready="port").comes_to("READY")


def test_a_port_that_somebody_else_has_opened_is_not_enough(keep):
    with socket.create_server(("", 0)) as stranger:
        port = stranger.getsockname()[1]
        silent = alone(keep, "time.sleep(60)", port=port, ready="port", ready_timeout_s=0.3)
        assert silent.ends().reason == "not READY within 0.3 s"


@pytest.mark.parametrize(("name", "reason"), [("worker:0", "as asked"), ("master:0", "not READY")])
def test_a_server_must_answer_with_the_name_that_its_script_has_for_the_job(keep, name, reason):
    task = alone(keep, "serve()", name=name, ready_timeout_s=0.3)
    if name == "worker:0":
        assert task.comes_to("READY")
        task.process.terminate()
    assert task.ends().reason.startswith(reason)


def test_what_a_task_leaves_behind_ends_with_it(keep):
    task = alone(
        keep,
        "child = subprocess.Popen(['sleep', '60'], env={}, start_new_session=True)\n"
        "print(child.pid, flush=True)",
    )
    assert task.ends().state == "SUCCEEDED"
    assert not is_alive(int(task.log))


# Begun again


def test_a_task_that_crashes_comes_back(keep):
    task = alone(keep, CRASH_ONCE)
    assert task.comes_to("BACKOFF")
    fallen = task.state
    assert (fallen.exit, fallen.reason, fallen.restarts) == (7, "exit 7; restart 1 of 10", 0)
    assert task.comes_to("READY", restarts=1)
    assert task.state.pid != fallen.pid
    assert task.is_alive()


def test_both_lives_stand_in_its_log(keep):
    task = alone(keep, "print('life', attempt(), flush=True); until_ready(); sys.exit(7)",
                 policy=policy(attempts=1, delay_s=0.1, exits=[7]))  # fmt: skip
    ended = task.ends()
    assert (ended.state, ended.restarts) == ("FAILED", 1)
    assert ended.reason == "exit 7; all 1 restarts within 3600 s are used up"
    assert task.log == "life 1\nlife 2\n"


def test_a_task_that_fails_at_once_after_it_was_ready_is_tried_as_often_as_is_said(keep):
    code = "n = attempt(); n == 1 and until_ready(); sys.exit(7)"
    task = alone(keep, code, policy=policy(attempts=3, delay_s=0.02, exits=[7]))
    assert (task.ends().restarts, task.attempts) == (3, 4)


@pytest.mark.slow
def test_a_frozen_task_is_begun_again_and_its_stacks_are_told(keep):
    task = alone(
        keep, "serve()", env={"PYTHONFAULTHANDLER": "1"},
        policy=policy(delay_s=0.1, frozen_timeout_s=0.5),
    )  # fmt: skip
    assert task.comes_to("READY")
    os.kill(task.state.pid, signal.SIGSTOP)
    assert task.comes_to("READY", restarts=1)
    assert task.state.reason.startswith("FROZEN: no answer on its port for ")
    assert task.state.reason.endswith(" s; restart 1 of 10")
    assert "most recent call first" in task.log
    assert "in serve" in task.log


def test_a_task_that_answers_as_another_is_not_ready(keep):
    ended = alone(keep, "serve(index=1)", ready_timeout_s=0.5).ends()
    assert ended.reason == "not READY within 0.5 s"


def test_a_stranger_that_answers_in_its_name_does_not_make_it_ready(keep):
    port = free_port()
    stranger = alone(keep, "serve(index=0)", index=1, port=None, env={"PORT": str(port)})
    task = alone(keep, "time.sleep(60)", port=port, ready_timeout_s=0.5)
    assert task.ends().reason == "not READY within 0.5 s"
    assert stranger.is_alive()


def test_a_stalled_task_is_begun_again(keep):
    task = alone(
        keep, "attempt() > 1 and sys.exit(); " + GO_ON,
        policy=policy(delay_s=0.1, stall_timeout_s=0.4),
    )  # fmt: skip
    assert task.comes_to("BACKOFF")
    assert task.state.reason.startswith("stalled: log and events unchanged for ")
    assert (task.ends().state, task.attempts) == ("SUCCEEDED", 2)


GROW = {
    "log": "print('step', flush=True)",
    "events": "open('checkpoints/train/events.out.tfevents.1', 'a').write('x')",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", GROW)
def test_a_task_whose_log_or_events_grow_is_not_stalled(keep, what):
    task = alone(
        keep,
        "attempt(); os.makedirs('checkpoints/train'); until_ready()\n"
        f"for _ in range(40): {GROW[what]}; time.sleep(0.04)",
        policy=policy(stall_timeout_s=0.8),
    )
    assert (task.ends().state, task.attempts) == ("SUCCEEDED", 1)


# Around it


def test_leases_are_free_once_the_task_has_ended(keep):
    task = alone(keep, CRASH_ONCE, lease="gpu/of-this-test", policy=LATER)
    assert task.comes_to("BACKOFF")
    assert leases.holder("gpu/of-this-test").pid == task.process.pid
    task.stop()
    task.ends()
    assert leases.holder("gpu/of-this-test") is None
