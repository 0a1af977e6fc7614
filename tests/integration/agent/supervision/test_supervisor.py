"""Tasks under their real supervisors: how attempts end, and which of them are restarted."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders import (
    NOBODY_UID,
    end_processes,
    make_heartbeat_settings,
    make_launch,
    make_policy,
    start_python,
)
from support.ports import free_port

from integration.agent.supervised_task import RUN_FOREVER, RUN_UNTIL_LET_END, is_alive
from tfdeploy.agent import paths
from tfdeploy.agent.machine import leases
from tfdeploy.agent.supervision import watch

ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
CRASH_ONCE = "first = attempt() == 1; become_ready(); sys.exit(7) if first else " + RUN_FOREVER
SOON = make_policy(delay_s=0.3, exits=[7, "signals"])
LATER = make_policy(delay_s=60.0, exits=[7, "signals"])


def run_alone(supervise, code, **changes):
    return supervise(code, **{"heartbeat": ALONE, "policy": SOON, **changes})


# The history


def test_every_state_of_a_restarted_task_is_in_its_history(supervise):
    task = run_alone(supervise, CRASH_ONCE)
    assert task.reaches("READY", restarts=1)
    task.stop()
    task.wait_for_end()
    file = Path(paths.history("p", task.launch.run, task.launch.task))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    [installed] = [each["versions"] for each in lines if "versions" in each]
    assert installed["Linux"] == os.uname().release
    history = [each for each in lines if "state" in each]
    assert [(each["state"], each["restarts"]) for each in history] == [
        *(("STARTING", 0), ("RUNNING", 0), ("READY", 0), ("BACKOFF", 0)),
        *(("RUNNING", 1), ("READY", 1), ("STOPPED", 1)),
    ]
    assert history[3]["reason"] == "exit 7; restart 1 of 10"
    times = [each["at"] for each in history]
    assert times == sorted(times)


# Ends without a restart


@pytest.mark.parametrize(
    ("code", "state", "exit_code", "reason"),
    [
        ("", "SUCCEEDED", 0, "exit 0"),
        ("sys.exit(7)", "FAILED", 7, "exit 7, before it was ever READY"),
        ("os.kill(os.getpid(), 9)", "FAILED", -9, "killed by SIGKILL, before it was ever READY"),
        ("become_ready(); sys.exit(3)", "FAILED", 3, "exit 3, which is not retried"),
        ("become_ready()", "SUCCEEDED", 0, "exit 0"),
    ],
)
def test_a_task_is_not_restarted_if_that_cannot_help(supervise, code, state, exit_code, reason):
    task = run_alone(supervise, "attempt(); " + code)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit, ended.reason) == (state, exit_code, reason)
    assert (ended.restarts, task.attempts) == (0, 1)


def test_a_guarded_task_that_has_not_loaded_the_library_is_ended(supervise):
    """For example because its command removes LD_PRELOAD from the environment."""
    ended = run_alone(supervise, "attempt(); serve()", network="guarded").wait_for_end()
    assert ended.state == "FAILED"
    assert ended.reason.startswith("everybody could connect to its port: the guard is not loaded")
    assert ended.reason.endswith('or set network = "open" in hosts.toml')


def test_a_program_that_cannot_be_run_is_named(supervise):
    ended = run_alone(supervise, "", argv=["/no/program"]).wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 127)
    assert ended.reason == "cannot run /no/program: No such file or directory"


def test_a_task_is_not_restarted_in_a_folder_that_another_user_could_replace(supervise):
    """The run's folder is opened while the task runs."""
    task = run_alone(supervise, "os.chmod('../..', 0o777); " + CRASH_ONCE)
    run = os.path.dirname(task.task_dir)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit, task.attempts) == ("FAILED", 126, 1)
    assert ended.reason.startswith(f"{run} belongs to ")
    assert ended.reason.endswith("so that other users could replace what tfdeploy stores and runs")


def test_a_full_disk_is_reported_and_not_retried(supervise):
    task = run_alone(
        supervise, "attempt(); become_ready(); raise OSError(28, 'No space left on device')",
        policy=make_policy(delay_s=0.1),
    )  # fmt: skip
    ended = task.wait_for_end()
    assert (ended.state, ended.exit, task.attempts) == ("FAILED", 1, 1)
    assert ended.reason == (
        "exit 1: the disk is full; tfdeploy runs shows what uses it, tfdeploy prune frees space"
    )
    assert "No space left on device" in task.log


def test_a_full_disk_during_an_earlier_attempt_does_not_explain_a_later_end(supervise):
    task = run_alone(
        supervise,
        "first = attempt() == 1; print('No space left on device' if first else '', flush=True)\n"
        "become_ready(); os.kill(os.getpid(), 9) if first else sys.exit(7)",
        policy=make_policy(delay_s=0.1, exits=[7, "signals"], attempts=1),
    )
    assert task.wait_for_end().reason == "exit 7; its one restart within an hour is used up"


def test_a_task_that_is_never_ready_is_ended(supervise):
    ended = run_alone(supervise, "time.sleep(60)", ready_timeout_s=0.3).wait_for_end()
    assert (ended.state, ended.reason) == ("FAILED", "not READY within 0.3 s")


def test_a_task_without_a_port_is_ready_at_once(supervise):
    task = run_alone(supervise, "time.sleep(60)", port=None)
    assert task.reaches("READY")


def test_a_task_without_a_port_that_ends_too_soon_is_not_restarted(supervise, monkeypatch):
    monkeypatch.setenv("SETTLED_S", "60")
    ended = run_alone(supervise, "sys.exit(7)", port=None).wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 7)
    assert re.fullmatch(r"exit 7 less than [\d.]+ s after its start", ended.reason)


def test_a_task_without_a_port_is_restarted_if_it_has_lived_for_a_while(supervise):
    code = "first = attempt() == 1; time.sleep(1.0 if first else 60); sys.exit(7)"
    assert run_alone(supervise, code, port=None).reaches("READY", restarts=1)


def test_ready_process_needs_no_listener(supervise):
    code = "time.sleep(1)\n" + RUN_UNTIL_LET_END
    task = run_alone(supervise, code, ready="process", ready_timeout_s=0.1)
    assert task.reaches("READY")
    task.let_end()
    assert task.wait_for_end().state == "SUCCEEDED"


def test_ready_port_needs_only_a_listener(supervise):
    listen = "listener = socket.create_server(('', int(os.environ['PORT']))); time.sleep(60)"
    assert run_alone(supervise, listen, ready="port").reaches("READY")


LISTEN = "listener = socket.create_server(('', int(os.environ['PORT'])))\n"


def meeting(supervise, code, index=0, heartbeat=None, **changes):
    """Start a worker of two that are to meet at the port of worker:0."""
    settings = make_heartbeat_settings(**{"needed": [], **(heartbeat or {})})
    return supervise(code, index=index, ready="rendezvous", heartbeat=settings, **changes)


def test_the_chief_is_ready_at_the_rendezvous_when_it_listens_the_others_when_connected(supervise):
    port = free_port()
    wait = "while not os.path.exists('go'): time.sleep(0.01)\n"
    code = wait + LISTEN + RUN_UNTIL_LET_END
    chief = meeting(supervise, code, port=port, master_port=port)
    connect = f"connection = socket.create_connection(('localhost', {port}))\n"
    other = meeting(supervise, wait + connect + RUN_UNTIL_LET_END, index=1, master_port=port)
    assert chief.reaches("RUNNING") and other.reaches("RUNNING")
    for task in (chief, other):
        assert task.state.state == "RUNNING"
        Path(paths.work(task.task_dir), "go").touch()
        assert task.reaches("READY")
        assert task.state.reason == ""


def test_a_task_that_meets_nobody_is_ready_after_ready_timeout_s_and_says_so(supervise):
    task = meeting(supervise, RUN_UNTIL_LET_END, index=1, master_port=free_port(),
                   ready_timeout_s=0.3)  # fmt: skip
    assert task.reaches("READY")
    assert task.state.reason == "it has not met worker:0 at its port within 0.3 s"


@pytest.fixture
def meet(supervise):
    """Return a function that starts one of three tasks that meet: the chief, worker:0, listens, and
    each other one runs `before`, connects, and then runs `after`."""
    port, tasks = free_port(), ["worker:0", "worker:1", "worker:2"]
    heartbeat = {"port": free_port(), "secret": secrets.token_hex(8), "tasks": tasks}
    connect = f"""
while True:
    try:
        connection = socket.create_connection(('localhost', {port}))
        break
    except OSError:
        time.sleep(0.05)
"""

    def start(index, before="", after=RUN_UNTIL_LET_END):
        code = before + (connect if index else LISTEN) + after
        own = {} if index else {"port": port}
        common = {"master_port": port, "policy": SOON, "heartbeat": heartbeat}
        return meeting(supervise, code, index=index, **own, **common)

    return start


def test_tasks_that_met_start_again_together_when_one_is_lost(meet):
    chief, other = meet(0), meet(1)
    assert chief.reaches("READY") and other.reaches("READY")
    os.kill(other.state.pid, signal.SIGKILL)
    for task in (chief, other):  # the chief's process itself notices nothing
        assert task.reaches("READY", restarts=1)
    assert chief.state.reason == (
        "worker:1 was lost, and all start again together; restart 1 of 10"
    )
    os.kill(chief.state.pid, signal.SIGKILL)
    for task in (chief, other):
        assert task.reaches("READY", restarts=2)
    assert other.state.reason == (
        "worker:0 was lost, and all start again together; restart 2 of 10"
    )


def test_a_task_that_has_not_met_the_others_yet_starts_again_with_them(meet):
    chief, other = meet(0), meet(1)
    late = meet(2, before="while not os.path.exists('go'): time.sleep(0.01)\n")
    assert chief.reaches("READY") and other.reaches("READY") and late.reaches("RUNNING")
    os.kill(other.state.pid, signal.SIGKILL)
    assert late.reaches("RUNNING", restarts=1)
    Path(paths.work(late.task_dir), "go").touch()
    for task in (chief, other, late):
        assert task.reaches("READY", restarts=1)


def test_no_task_is_restarted_for_a_loss_after_one_has_succeeded(meet):
    """That one would not meet them again, but the chief may still save."""
    chief, other, short = meet(0), meet(1), meet(2, after="wait_until('READY', 'worker-2')")
    assert chief.reaches("READY") and other.reaches("READY") and short.reaches("SUCCEEDED")
    os.kill(other.state.pid, signal.SIGKILL)
    reason = "killed by SIGKILL; not restarted alone, because worker:2 has ended"
    assert other.wait_for_end().reason == reason
    time.sleep(1.0)  # 20 heartbeats
    chief.let_end()
    assert chief.reaches("SUCCEEDED", restarts=0)


def test_a_port_opened_by_another_process_does_not_make_a_task_ready(supervise):
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        silent = run_alone(
            supervise, "time.sleep(60)", port=port, ready="port", ready_timeout_s=0.3
        )
        assert silent.wait_for_end().reason == "not READY within 0.3 s"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_who_has_taken_the_port_after_the_start_is_named(supervise):
    """A lease is known to tfdeploy alone; before a task listens, or while it is restarted, its port
    is free for everybody."""
    stranger = start_python(
        f"import os, socket, time; os.setuid({NOBODY_UID})\n"
        "taken = socket.create_server(('', 0)); print(taken.getsockname()[1], flush=True)\n"
        "time.sleep(600)"
    )
    try:
        task = run_alone(supervise, "serve()", port=int(stranger.first_line))
        state = task.wait_for_end()
    finally:
        end_processes([stranger])
    words = f"exit 1; port {stranger.first_line} is taken by a process of another user (nobody)"
    assert state.reason.startswith(words) and state.state == "FAILED"


def test_a_server_that_answers_with_the_name_in_its_launch_is_ready(supervise):
    task = run_alone(supervise, "serve()", name="worker:0")
    assert task.reaches("READY")
    task.stop()
    assert task.wait_for_end().reason.startswith("on request")


def test_a_server_that_answers_with_another_name_than_in_its_launch_is_not_ready(supervise):
    task = run_alone(supervise, "serve()", name="master:0", ready_timeout_s=0.3)
    assert task.wait_for_end().reason.startswith("not READY")


def test_processes_that_a_task_leaves_behind_end_with_it(supervise):
    task = run_alone(
        supervise,
        "child = subprocess.Popen(['sleep', '60'], env={}, start_new_session=True)\n"
        "print(child.pid, flush=True)",
    )
    assert task.wait_for_end().state == "SUCCEEDED"
    assert not is_alive(int(task.log.split()[0]))
    assert "ended sleep 60 (pid " in task.log


# Restarts


def test_a_task_that_crashes_waits_for_its_restart(supervise):
    task = run_alone(supervise, CRASH_ONCE, policy=LATER)
    assert task.reaches("BACKOFF")
    crashed = task.state
    assert (crashed.exit, crashed.reason, crashed.restarts) == (7, "exit 7; restart 1 of 10", 0)
    assert not task.is_alive()


def test_a_task_that_crashes_is_restarted(supervise):
    task = run_alone(supervise, "print(os.getpid(), file=open('pids', 'a')); " + CRASH_ONCE)
    assert task.reaches("READY", restarts=1)
    crashed, restarted = Path(paths.work(task.task_dir), "pids").read_text().split()
    assert str(task.state.pid) == restarted != crashed
    assert task.is_alive()


def test_the_log_has_the_output_of_both_attempts(supervise):
    code = "print('attempt', attempt(), flush=True); become_ready(); sys.exit(137)"
    task = run_alone(supervise, code, policy=make_policy(attempts=1, delay_s=0.1))
    ended = task.wait_for_end()
    assert (ended.state, ended.restarts) == ("FAILED", 1)
    assert ended.reason == "exit 137; its one restart within an hour is used up"
    assert task.log == "attempt 1\nattempt 2\n"


def test_a_task_that_was_ready_once_gets_all_its_restarts(supervise):
    code = "n = attempt(); n == 1 and become_ready(); sys.exit(137)"
    task = run_alone(supervise, code, policy=make_policy(attempts=3, delay_s=0.02))
    assert (task.wait_for_end().restarts, task.attempts) == (3, 4)


RAISES = "attempt(); become_ready(); raise ValueError('boom')"


def test_the_same_exception_twice_without_progress_is_not_retried(supervise):
    task = run_alone(supervise, RAISES, policy=make_policy(delay_s=0.05))
    ended = task.wait_for_end()
    assert (ended.state, ended.restarts, task.attempts) == ("FAILED", 1, 2)
    assert ended.reason.endswith("no progress in between: ValueError: boom")
    assert task.log.count("ValueError: boom") == 2


def test_the_same_exit_code_twice_without_traceback_and_progress_is_not_retried(supervise):
    code = "attempt(); become_ready(); open('model.keras', 'w').write('weights'); sys.exit(1)"
    task = run_alone(supervise, code, policy=make_policy(delay_s=0.05))
    ended = task.wait_for_end()
    assert (ended.state, ended.restarts, task.attempts) == ("FAILED", 1, 2)
    assert ended.reason == "exit 1, twice with no progress in between"


def test_the_same_exception_is_retried_while_the_task_progresses(supervise):
    code = "n = attempt(); open('epoch-%d.txt' % n, 'w') if n < 3 else 0; become_ready()\n"
    task = run_alone(supervise, code + "raise ValueError('boom')", policy=make_policy(delay_s=0.05))
    assert (task.wait_for_end().state, task.attempts) == ("FAILED", 3)


def test_a_lost_peer_is_retried_with_the_same_exception(supervise):
    code = "attempt(); become_ready()\nclass UnavailableError(Exception): pass\n"
    task = run_alone(
        supervise,
        code + "raise UnavailableError('gone')",
        policy=make_policy(delay_s=0.05, attempts=3),
    )
    assert (task.wait_for_end().state, task.attempts) == ("FAILED", 4)


@pytest.mark.slow
def test_a_frozen_task_is_restarted_and_its_stacks_are_logged(supervise):
    task = run_alone(
        supervise, "serve()", env={"PYTHONFAULTHANDLER": "1"},
        policy=make_policy(delay_s=0.1, frozen_timeout_s=0.5),
    )  # fmt: skip
    assert task.reaches("READY")
    os.kill(task.state.pid, signal.SIGSTOP)
    assert task.reaches("READY", restarts=1)
    assert task.state.reason.startswith("FROZEN: no answer on its port for ")
    assert task.state.reason.endswith(" s; restart 1 of 10")
    assert "most recent call first" in task.log
    assert "in serve" in task.log


def test_a_task_that_answers_with_another_name_is_not_ready(supervise):
    ended = run_alone(supervise, "serve(index=1)", ready_timeout_s=0.5).wait_for_end()
    assert ended.reason == "not READY within 0.5 s"


def test_another_process_with_the_same_name_does_not_make_a_task_ready(supervise):
    port = free_port()
    other = run_alone(supervise, "serve(index=0)", index=1, port=None, env={"PORT": str(port)})
    task = run_alone(supervise, "time.sleep(60)", port=port, ready_timeout_s=0.5)
    assert task.wait_for_end().reason == "not READY within 0.5 s"
    assert other.is_alive()


def test_a_stalled_task_is_restarted(supervise):
    task = run_alone(
        supervise, f"if attempt() == 1: {RUN_FOREVER}\n{RUN_UNTIL_LET_END}",
        policy=make_policy(delay_s=0.1, stall_timeout_s=0.4),
    )  # fmt: skip
    assert task.reaches("RUNNING", restarts=1)
    assert task.state.reason.startswith("stalled: log and events unchanged for ")
    task.let_end()
    assert (task.wait_for_end().state, task.attempts) == ("SUCCEEDED", 2)


class Stalling:
    """A task that writes nothing, watched on a clock of the test's own."""

    def __init__(self, monkeypatch, folder):
        self.now = 1000.0
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))
        launch = make_launch(policy=make_policy(stall_timeout_s=60.0))
        log, child = SimpleNamespace(grew_at=self.now), SimpleNamespace(pid=0)
        self.watch = watch.AttemptWatch(
            child, launch, str(folder), "mark", log,
            lambda: None, lambda reason: None, lambda ports: None,
        )  # fmt: skip

    def after(self, seconds, every_s=5.0):
        """Check every five seconds; return the order after `seconds`."""
        for _ in range(int(seconds / every_s)):
            self.now += every_s
            order = self.watch._check_stall()
        return order


def test_stall_timeout_s_counts_from_ready(tmp_path, monkeypatch):
    """A task may load its data for longer, without a line in its log."""
    task = Stalling(monkeypatch, tmp_path)
    task.now += 500.0
    task.watch._set_ready()
    assert task.after(55.0) is None
    assert task.after(5.0).reason == "stalled: log and events unchanged for 60 s"


def test_a_task_on_a_host_that_stood_still_has_not_stalled(tmp_path, monkeypatch):
    """A paused virtual machine or container: neither the task nor its supervisor ran."""
    task = Stalling(monkeypatch, tmp_path)
    task.watch._set_ready()
    assert task.after(50.0) is None
    assert task.after(600.0, every_s=600.0) is None
    assert task.after(55.0) is None
    assert task.after(5.0).reason == "stalled: log and events unchanged for 60 s"


GROW = {
    "log": "print('step', flush=True)",
    "events": "open('checkpoints/train/events.out.tfevents.1', 'a').write('x')",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", GROW)
def test_a_task_whose_log_or_events_grow_is_not_stalled(supervise, what):
    task = run_alone(
        supervise,
        "attempt(); os.makedirs('checkpoints/train'); become_ready()\n"
        f"for _ in range(150): {GROW[what]}; time.sleep(0.04)",
        policy=make_policy(stall_timeout_s=5.0),
    )
    assert (task.wait_for_end().state, task.attempts) == ("SUCCEEDED", 1)


# Leases


def test_leases_are_free_when_the_task_has_ended(supervise):
    lease = f"gpu/{secrets.token_hex(8)}"  # the whole machine shares the names
    task = run_alone(supervise, CRASH_ONCE, lease=lease, policy=LATER)
    assert task.reaches("BACKOFF")
    assert leases.holder(lease).pid == task.process.pid
    task.stop()
    task.wait_for_end()
    assert leases.holder(lease) is None
