"""Faults 37 and 38: a stalled task is restarted; a task that always crashes is given up."""

from __future__ import annotations

import json

import pytest
from support.training import STUB, steps

from faults import table
from faults.fault import Fault
from tfdeploy.agent.machine import grpc_health

pytestmark = pytest.mark.slow


def waits_s(run, task: str) -> list[float]:
    """Return the seconds between the end of each attempt and the start of the next one."""
    lines = (run.work(task) / "attempts").read_text().splitlines()
    times = [json.loads(line) for line in lines]
    return [then - end for end, then in zip(times[1::2], times[2::2], strict=False)]


def test_a_crash_loop_is_bounded_and_each_backoff_is_longer(training):
    restart = {"attempts": 3, "delay_s": 0.5}
    words = ("--gate", "--steps=40", "--exit=137", "--who", "worker:1")
    run = training("notes_attempts.py", *words, restart=restart)
    run.add_script(STUB)
    run.start()
    pid = run.pid("worker:0")
    (run.work("worker:1") / "go").touch()
    run.until(lambda: run.state("worker:1")["state"] == "FAILED", "FAILED")
    waited, state = waits_s(run, "worker:1"), run.state("worker:1")
    assert state["restarts"] == 3 == len(waited)
    assert "all 3 restarts within an hour are used up" in state["reason"]
    # 0.5, 1 and 2 s, each shortened by up to half. A busy machine makes each of them longer.
    shortest = (0.25, 0.5, 1.0)
    assert all(wait >= least for wait, least in zip(waited, shortest, strict=True)), waited
    assert run.pid("worker:0") == pid
    assert run.states() == {"ps:0": "READY", "worker:0": "READY", "worker:1": "FAILED"}
    delays = ", ".join(f"{wait:.1f} s" for wait in waited)
    table.record(f"38 crash loop, attempts = 3, delay_s = 0.5: waited {delays}", sum(waited))


def test_a_task_that_succeeded_is_not_restarted(training):
    run = training(STUB, "--gate").start()
    (run.work("worker:1") / "go").touch()
    run.until(lambda: run.state("worker:1")["state"] == "SUCCEEDED", "its success")
    (run.work("worker:0") / "go").touch()
    run.until(lambda: run.processes() == {}, "the end of the run")
    assert (run.states()["worker:1"], run.restarts()["worker:1"]) == ("SUCCEEDED", 0)


def test_a_task_stopped_in_its_backoff_stays_stopped(training):
    # Longer than a stop takes.
    run = training(STUB, "--hold", restart={"delay_s": 60}).start()
    run.send_signal(9, "worker:1")
    run.until(lambda: run.state("worker:1")["state"] == "BACKOFF", "BACKOFF")
    run.ok("stop")
    assert run.processes() == {}
    assert set(run.states().values()) == {"STOPPED"}
    assert set(run.restarts().values()) == {0}


def test_a_stalled_task_that_still_answers_on_its_port_is_restarted(training):
    run = training(
        "stands_still.py", "--steps=1000000", "--save_steps=1", tasks={"ps": 1, "workers": 1},
        restart={"stall_timeout_s": 6},
    )  # fmt: skip
    run.add_script("train_stub.py")
    run.start()
    run.until(lambda: steps(run.log("worker:0")), "its first step")
    fault = Fault(run)
    # Asked without a command, which may take longer than stall_timeout_s.
    port = run.hosts["here"]["ports"][1]
    assert grpc_health.probe("localhost", port, "worker:0", 60.0).verdict == grpc_health.READY
    fault.wait_for_detection("worker:0", "BACKOFF")
    fault.wait_for_restore()
    assert run.state("worker:0")["reason"].startswith("stalled: log and events unchanged for")
    assert fault.restarted() == {"worker:0"}
    assert run.status()["worker:0"]["quiet_s"] is not None
    fault.record("37 the step counter stands still, stall_timeout_s = 6")


def test_a_script_without_event_files_is_shown_with_the_step_of_its_log(training):
    run = training(STUB, "--hold").start()
    run.until(lambda: "step 3, log" in run.ok("status"), "the last step in the log")
    (line,) = [line for line in run.ok("status").splitlines() if line.startswith("worker:0")]
    assert "READY" in line
    assert "stalled" not in line
