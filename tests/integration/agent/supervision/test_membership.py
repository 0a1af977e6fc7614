"""Several tasks under real supervisors: all end when their run ends, without a controller."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time

import pytest
from support.builders import eventually, make_heartbeat_settings, make_policy
from support.ports import free_port

from integration.agent.supervised_task import RUN_FOREVER
from tfdeploy.agent.machine import leases

CRASH = "become_ready(); sys.exit(7)"
NEVER = make_policy(attempts=0, exits=[7])


@pytest.fixture
def run(supervise):
    """Start ps:0, worker:1 and the chief, worker:0, each with its script; None leaves it out.

    `heartbeat` has changes of its settings, `changes` those of every task."""

    def start(chief, ps=RUN_FOREVER, worker=RUN_FOREVER, heartbeat=None, **changes):
        settings = make_heartbeat_settings(
            port=free_port(), secret=os.urandom(8).hex(), **(heartbeat or {})
        )
        scripts = {"ps": (0, ps), "worker": (1, worker), "chief": (0, chief)}
        return [
            supervise(script, job="ps" if job == "ps" else "worker", index=index,
                 **{"heartbeat": settings, "policy": NEVER, "linger_s": 0.4, **changes})
            for job, (index, script) in scripts.items()
            if script is not None
        ]  # fmt: skip

    return start


def wait_for_ends(tasks):
    """Return (state, reason, cause) of each task after its end."""
    states = [task.wait_for_end() for task in tasks]
    return [(state.state, state.reason, state.cause) for state in states]


# The start of a chief's script: wait until the others are READY.
WAIT = "become_ready(); wait_until('READY', 'ps-0', 'worker-1'); "


def test_the_others_are_stopped_when_the_chief_succeeds(run):
    ps, worker, chief = wait_for_ends(run(WAIT))
    assert chief == ("SUCCEEDED", "exit 0", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 succeeded; stopped by SIGTERM", "")
    assert ps == worker


def test_a_worker_that_ends_within_its_linger_time_has_succeeded(run):
    tasks = run(WAIT, worker="become_ready(); wait_until('SUCCEEDED', 'worker-0')", linger_s=60.0)
    ps, worker, chief = wait_for_ends(tasks)
    assert (worker, chief) == (("SUCCEEDED", "exit 0", ""),) * 2
    assert ps[0] == "STOPPED"


def test_workers_end_after_the_chief_without_a_limit(run):
    late = "become_ready(); wait_until('SUCCEEDED', 'worker-0'); time.sleep(1.0)"
    ps, worker, chief = wait_for_ends(run(WAIT, worker=late, linger_s=None))
    assert (worker, chief) == (("SUCCEEDED", "exit 0", ""),) * 2
    assert ps[0] == "STOPPED"


def test_a_worker_that_waits_for_its_restart_ends_with_the_run(run):
    crash = "become_ready(); sys.exit(7)"
    policy = make_policy(exits=[7], delay_s=60.0)
    chief = "become_ready(); wait_until('BACKOFF', 'worker-1')"
    ps, worker, chief = wait_for_ends(run(chief, worker=crash, linger_s=None, policy=policy))
    reason = "exit 7; not restarted: the run has ended: worker:0 succeeded"
    assert worker == ("FAILED", reason, "")
    assert (chief[0], ps[0]) == ("SUCCEEDED", "STOPPED")


def test_a_worker_that_crashes_after_the_end_is_not_restarted(run):
    # After one second the worker's supervisor knows that the chief succeeded.
    crash = "become_ready(); wait_until('SUCCEEDED', 'worker-0'); time.sleep(1.0); sys.exit(7)"
    tasks = run(WAIT, worker=crash, linger_s=60.0, policy=make_policy(exits=[7]))
    ps, worker, chief = wait_for_ends(tasks)
    assert (worker, chief[0]) == (("FAILED", "exit 7", ""), "SUCCEEDED")
    assert ps[0] == "STOPPED"


def test_a_ps_outlives_the_workers(run):
    script = (
        "def ended(*_): open('../../order', 'a').write('{}'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, ended); "
    )
    tasks = run(
        WAIT, ps=script.format("ps ") + RUN_FOREVER, worker=script.format("worker ") + RUN_FOREVER,
        stop_grace_s=60.0,
    )  # fmt: skip
    wait_for_ends(tasks)
    with open(os.path.join(os.path.dirname(tasks[0].task_dir), "order")) as order:
        assert order.read() == "worker ps "


def test_the_others_are_stopped_at_once_when_the_chief_fails(run):
    ps, worker, chief = wait_for_ends(run(WAIT + "sys.exit(7)", linger_s=3600.0))
    assert chief == ("FAILED", "exit 7", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 failed; stopped by SIGTERM", "")
    assert ps == worker


@pytest.mark.parametrize("ends", ["chief", "ps"])
def test_tasks_end_with_their_run_before_the_next_tick(run, monkeypatch, ends):
    monkeypatch.setenv("READY_TICK_S", "3600")
    crash = WAIT.replace("'ps-0', ", "") if ends == "ps" else WAIT
    scripts = {"chief": RUN_FOREVER, ends: crash + "sys.exit(7)"}
    ps, worker, chief = wait_for_ends(run(**scripts))
    assert chief[0] == "FAILED"
    assert worker == ("STOPPED", "the run has ended: worker:0 failed; stopped by SIGTERM", "")
    assert ps[0] == {"chief": "STOPPED", "ps": "FAILED"}[ends]


def test_the_chief_fails_with_a_task_that_it_needs(run):
    ps, worker, chief = wait_for_ends(run(RUN_FOREVER, ps=CRASH))
    assert ps == ("FAILED", "exit 7", "")
    assert chief == ("FAILED", "ps:0 failed: exit 7", "ps:0")
    assert worker[1] == "the run has ended: worker:0 failed; stopped by SIGTERM"


def test_a_chief_learns_of_a_failure_before_its_start(supervise):
    settings = make_heartbeat_settings(port=free_port(), tasks=["ps:0", "worker:0"])
    ps = supervise("sys.exit(7)", job="ps", heartbeat=settings)
    assert ps.reaches("FAILED")
    chief = supervise(RUN_FOREVER, heartbeat=settings)
    assert chief.wait_for_end().reason == "ps:0 failed: exit 7, before it was ever READY"
    assert ps.wait_for_end().state == "FAILED"


def test_a_task_that_cannot_report_its_end_can_be_stopped(supervise):
    ps = supervise("sys.exit(7)", job="ps", heartbeat=make_heartbeat_settings(port=free_port()))
    assert ps.reaches("FAILED")
    ps.stop()
    assert ps.wait_for_end().state == "FAILED"


def test_the_chief_continues_when_a_task_fails_that_it_does_not_need(run):
    ps, worker, chief = run(RUN_FOREVER, worker=CRASH)
    assert worker.wait_for_end().state == "FAILED"
    assert chief.reaches("READY")
    assert ps.reaches("READY")
    chief.stop()
    assert chief.wait_for_end().state == "STOPPED"


def test_a_chief_that_loses_its_connections_again_fails_with_the_task_that_has_failed(run):
    lost = "raise type('CancelledError', (Exception,), {})('step')"
    policy = make_policy(exits=[1], attempts=10, delay_s=0.01)
    chief = f"wait_until('FAILED', 'worker-1'); become_ready(); {lost}"
    ps, worker, chief = wait_for_ends(run(chief, worker=CRASH, policy=policy))
    reason = (
        "exit 1, twice after a lost connection and with no progress in between; "
        "worker:1 failed: exit 7, which is not retried"
    )
    assert worker == ("FAILED", "exit 7, which is not retried", "")
    assert chief == ("FAILED", reason, "worker:1")
    assert ps[:2] == ("STOPPED", "the run has ended: worker:0 failed; stopped by SIGTERM")


def test_the_chief_is_not_restarted_with_a_task_that_it_needs(run):
    crash_once = "first = attempt() == 1; become_ready(); first and sys.exit(7); time.sleep(60)"
    policy = make_policy(delay_s=0.2, exits=[7])
    ps, _, chief = run(RUN_FOREVER, ps=crash_once, policy=policy)
    assert ps.reaches("READY", restarts=1)
    assert chief.reaches("READY", restarts=0)


def test_a_run_is_stopped_after_max_duration_s(run):
    ps, worker, chief = wait_for_ends(run(RUN_FOREVER, max_duration_s=1.0))
    assert chief == ("STOPPED", "max_duration_s (1 s) has passed; stopped by SIGTERM", "")
    assert worker == ("STOPPED", "the run has ended: worker:0 was stopped; stopped by SIGTERM", "")
    assert ps == worker


def test_a_task_in_backoff_ends_with_the_run(run):
    wait = "become_ready(); wait_until('BACKOFF', 'worker-1'); sys.exit(3)"
    _, worker, chief = run(wait, worker=CRASH, policy=make_policy(delay_s=60.0, exits=[7]))
    assert chief.wait_for_end().state == "FAILED"
    ended = worker.wait_for_end()
    assert (ended.state, ended.exit) == ("STOPPED", 7)
    assert ended.reason == "the run has ended: worker:0 failed"


# Without a ps: tasks that train in step

IN_STEP = {"tasks": ["worker:0", "worker:1"], "needed": ["worker:1"]}
RESTARTED = make_policy(exits=[7, "SIGKILL"], delay_s=0.01)
NOT_ALONE = "exit 7; not restarted alone, because worker:1 has ended"


def test_a_task_is_not_restarted_if_the_one_that_it_trains_with_has_succeeded(run):
    chief = "become_ready(); wait_until('SUCCEEDED', 'worker-1'); time.sleep(1.0); sys.exit(7)"
    tasks = run(chief, ps=None, worker="become_ready()", heartbeat=IN_STEP, policy=RESTARTED)
    worker, chief = wait_for_ends(tasks)
    assert (worker[0], chief) == ("SUCCEEDED", ("FAILED", NOT_ALONE, ""))


def test_a_task_waits_for_the_news_that_the_one_that_it_trains_with_has_succeeded(run):
    """The failure is known before the success that caused it: that process takes long to exit."""
    late = "become_ready(); wait_until('BACKOFF', 'worker-0'); time.sleep(0.2)"
    crash = "become_ready(); wait_until('READY', 'worker-1'); sys.exit(7)"
    tasks = run(crash, ps=None, worker=late, heartbeat=IN_STEP, policy=RESTARTED)
    worker, chief = wait_for_ends(tasks)
    assert (worker[0], chief) == ("SUCCEEDED", ("FAILED", NOT_ALONE, ""))


def test_a_lost_worker_is_restarted_while_those_that_it_trains_with_go_on(run):
    once = "first = attempt() == 1; become_ready(); first and sys.exit(7); time.sleep(600)"
    tasks = run(RUN_FOREVER, ps=None, worker=once, heartbeat=IN_STEP, policy=RESTARTED)
    worker, chief = tasks
    assert worker.reaches("READY", restarts=1)
    assert chief.reaches("READY", restarts=0)
    chief.process.send_signal(signal.SIGUSR1)
    wait_for_ends(tasks)


@pytest.mark.slow
def test_a_restarted_task_that_is_not_ready_may_wait_for_one_that_has_succeeded(run):
    """A barrier of the program's own: no framework says that the tasks meet."""
    chief = (
        "first = attempt() == 1; first or time.sleep(600); "
        "become_ready(); wait_until('SUCCEEDED', 'worker-1'); sys.exit(7)"
    )
    tasks = run(
        chief, ps=None, worker="become_ready()", heartbeat=IN_STEP, policy=RESTARTED, ready="port",
        ready_timeout_s=5.0,
    )  # fmt: skip
    worker, chief = wait_for_ends(tasks)
    reason = "not READY within 5 s; not restarted alone, because worker:1 has ended"
    assert (worker[0], chief) == ("SUCCEEDED", ("FAILED", reason, ""))


# Several failures


def test_a_chief_that_has_failed_by_itself_names_no_other_task_as_the_cause(run):
    raised = "try:\n    raise ValueError('no such column')\nfinally:\n    "
    slow = "import traceback; traceback.print_exc(); sys.stderr.flush(); time.sleep(2); sys.exit(1)"
    chief = WAIT + f"\n{raised.replace('finally', 'except ValueError')}{slow}"
    wait = "become_ready(); wait_until('READY', 'worker-0', 'worker-1'); time.sleep(0.5)"
    tasks = run(
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(1))\n" + chief,
        ps=wait + "; sys.exit(7)",
    )
    ps, _, chief = wait_for_ends(tasks)
    assert ps[:2] == ("FAILED", "exit 7")
    assert chief == ("FAILED", "exit 1: ValueError: no such column", "")


# Without messages


@pytest.mark.parametrize("name", ["ps", "worker"])
def test_a_task_without_messages_from_the_chief_stops(run, name):
    (task,) = run(
        None, **{"ps": None, "worker": None, name: RUN_FOREVER}, heartbeat={"orphan_timeout_s": 0.8}
    )
    assert task.reaches("STOPPED")
    assert re.match(r"no message from worker:0 for \d+ s; ", task.state.reason)
    assert (task.state.cause, task.is_alive()) == ("worker:0", False)


def test_the_others_stop_soon_when_the_chiefs_supervisor_is_killed_and_its_host_lives(run):
    ps, worker, chief = run(WAIT + "time.sleep(600)")
    assert all(task.reaches("READY") for task in (ps, worker, chief))
    time.sleep(2.0)  # only a chief that has answered before can be gone: 40 heartbeats
    chief.kill()
    for task in (ps, worker):
        assert task.reaches("STOPPED")
        gone = r"no message from worker:0 for \d+ s: its supervisor is gone; "
        assert re.match(gone, task.state.reason)
        assert task.state.cause == "worker:0"


@pytest.mark.slow
def test_a_chief_without_messages_from_its_ps_fails(run):
    (chief,) = run(RUN_FOREVER, ps=None, worker=None, heartbeat={"orphan_timeout_s": 0.8})
    ((state, reason, cause),) = wait_for_ends([chief])
    assert (state, cause) == ("FAILED", "ps:0")
    assert re.fullmatch(r"no message from ps:0 for \d+ s", reason)


# Leaving the run


def test_a_chief_that_is_stopped_alone_does_not_wait_for_the_others(run):
    ps, worker, chief = run(RUN_FOREVER)
    assert all(task.reaches("READY") for task in (ps, worker, chief))
    chief.stop()
    assert chief.wait_for_end().reason == "on request; stopped by SIGTERM"
    assert ps.is_alive()
    assert worker.is_alive()


def test_a_chief_stopped_with_its_run_stops_the_others_and_records_their_end(run):
    _, worker, chief = tasks = run(RUN_FOREVER)
    assert all(task.reaches("READY") for task in tasks)
    chief.process.send_signal(signal.SIGUSR1)
    assert {state for state, _, _ in wait_for_ends(tasks)} == {"STOPPED"}
    assert worker.state.reason.startswith("the run has ended: worker:0 was stopped")
    assert chief.state.others_ended


def test_a_task_stopped_with_its_run_stops_the_chief(run):
    _, worker, chief = tasks = run(RUN_FOREVER)
    assert all(task.reaches("READY") for task in tasks)
    worker.process.send_signal(signal.SIGUSR1)
    assert {state for state, _, _ in wait_for_ends(tasks)} == {"STOPPED"}
    assert chief.state.reason.startswith("the run was stopped, as worker:1 reported")


def test_a_chief_releases_its_leases_before_the_others_have_ended(supervise):
    settings = make_heartbeat_settings(
        port=free_port(), secret=os.urandom(8).hex(), tasks=["worker:0", "worker:1"], needed=[]
    )
    lease = f"gpu/{secrets.token_hex(8)}"  # the whole machine shares the names
    own = f"port/{secrets.token_hex(8)} {lease}"
    chief = supervise("become_ready()", heartbeat=settings, lease=own)
    assert chief.reaches("SUCCEEDED")
    assert eventually(lambda: leases.holder(lease) is None)
    assert chief.process.poll() is None  # it still waits for a message from worker:1
    chief.process.send_signal(signal.SIGTERM)
    assert chief.wait_for_end().state == "SUCCEEDED"


def test_a_chief_without_a_port_keeps_the_lease_of_its_heartbeat_until_the_others_have_ended(
    supervise,
):
    settings = make_heartbeat_settings(
        port=free_port(), secret=os.urandom(8).hex(), tasks=["worker:0", "worker:1"], needed=[]
    )
    lease = f"port/{secrets.token_hex(8)}"
    chief = supervise("", heartbeat=settings, lease=lease, port=None, ready="process")
    assert chief.reaches("SUCCEEDED")
    holder = leases.holder(lease)
    assert holder is not None
    assert holder.pid == chief.process.pid
    chief.process.send_signal(signal.SIGTERM)
    assert chief.wait_for_end().state == "SUCCEEDED"
    assert leases.holder(lease) is None
