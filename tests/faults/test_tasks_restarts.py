"""Faults 37 and 38: what stands still is told and begun again; what crashes for ever is not."""

from __future__ import annotations

import itertools

import pytest

from faults import table
from faults.fault import Fault
from faults.training import STUB, patiently

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def changes_until(run, task: str, state: str) -> list[tuple[str, float]]:
    """Each state that the task comes to, and since when, up to `state`."""
    seen: list[tuple[str, float]] = []

    def arrived() -> bool:
        told = run.state(task)
        if (change := (told["state"], told["since"])) not in seen:
            seen.append(change)
        return told["state"] == state

    patiently(arrived, state)
    return seen


def waits(seen: list[tuple[str, float]]) -> list[float]:
    """How long each BACKOFF lasted."""
    pairs = itertools.pairwise(seen)
    return [then - since for (state, since), (_, then) in pairs if state == "BACKOFF"]


def test_a_crash_loop_is_bounded_and_each_wait_longer_than_the_one_before(training):
    restart = {"attempts": 3, "delay_s": 0.5}
    words = ("--gate", "--steps=40", "--exit=1", "--who", "worker:1")
    run = training(STUB, *words, restart=restart).start()
    pid = run.pid("worker:0")
    (run.work("worker:1") / "go").touch()
    waited = waits(changes_until(run, "worker:1", "FAILED"))
    told = run.state("worker:1")
    assert told["restarts"] == 3 == len(waited)
    assert "all 3 restarts within 3600 s are used up" in told["reason"]
    assert waited == sorted(waited)
    assert run.pid("worker:0") == pid
    assert run.states() == {"ps:0": "READY", "worker:0": "READY", "worker:1": "FAILED"}
    shown = ", ".join(f"{wait:.1f} s" for wait in waited)
    table.record(f"38 crash loop, attempts = 3, delay_s = 0.5: waited {shown}", sum(waited))


def test_who_has_done_its_part_is_not_begun_again(training):
    run = training(STUB, "--gate").start()
    (run.work("worker:1") / "go").touch()
    patiently(lambda: run.state("worker:1")["state"] == "SUCCEEDED", "its success")
    (run.work("worker:0") / "go").touch()
    patiently(lambda: run.processes() == {}, "the end of the run")
    assert (run.states()["worker:1"], run.restarts()["worker:1"]) == ("SUCCEEDED", 0)


def test_who_was_stopped_in_its_backoff_stays_stopped(training):
    run = training(STUB, "--hold", restart={"delay_s": 60}).start()
    run.send(9, "worker:1")
    patiently(lambda: run.state("worker:1")["state"] == "BACKOFF", "BACKOFF")
    run.ok("stop")
    assert run.processes() == {}
    assert set(run.states().values()) == {"STOPPED"}
    assert set(run.restarts().values()) == {0}


def test_training_that_stands_still_behind_a_live_port_is_begun_again(training):
    run = training(
        "stands_still.py", "--steps=1000000", tasks={"ps": 1, "workers": 1},
        restart={"stall_timeout_s": 12},
    )  # fmt: skip
    run.beside("train_async.py")
    run.start()
    patiently(lambda: "\nstep " in run.log("worker:0"), "its first step")
    fault = Fault(run)
    told = run.status()["worker:0"]
    assert told["health"] == "READY"
    assert told["quiet_s"] is not None
    fault.detected("worker:0", "BACKOFF")
    fault.restored()
    assert run.state("worker:0")["reason"].startswith("stalled: log and events unchanged for")
    assert fault.restarted() == {"worker:0"}
    fault.record("37 the step counter stands still, stall_timeout_s = 12")


def test_a_script_that_tells_no_step_is_called_unknown_and_never_stalled(training):
    run = training(STUB, "--hold").start()
    (line,) = [line for line in run.ok("status").splitlines() if line.startswith("worker:0")]
    assert "READY" in line
    assert "unknown, log" in line
