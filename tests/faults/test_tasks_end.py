"""Faults 11, 12 and 36, and every other end: whatever ends a run ends all of it, and says why."""

from __future__ import annotations

import re

import pytest

from faults import table
from faults.fault import Fault
from faults.training import KINDS, STUB, patiently, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TRAINED = [script for script in KINDS if script != STUB]


def ended(run) -> bool:
    return set(run.states().values()) <= {"SUCCEEDED", "STOPPED", "FAILED"}


def ended_after(run, cause: str) -> float:
    """How many seconds after `cause` the last task had ended, by the host's clock."""
    return max(run.state(task)["since"] for task in run.tasks) - run.state(cause)["since"]


@pytest.mark.parametrize("script", TRAINED)
def test_with_no_controller_all_tasks_end_after_the_chiefs_success(training, script):
    run = training(script, "--steps=150").start()
    patiently(lambda: ended(run), "the end of all")
    patiently(lambda: run.processes() == {}, "the end of their supervisors")
    assert run.states()[run.chief] == "SUCCEEDED"
    assert set(run.states().values()) <= {"SUCCEEDED", "STOPPED"}
    figure = ended_after(run, run.chief)
    table.record(f"the chief's success without a controller, {script}: all ended", figure)


def test_a_worker_that_never_ends_costs_its_grace_and_no_success(training):
    run = training("never_ends.py", "--steps=150")
    run.beside("train_async.py")
    run.ok("push")
    done = run.tf("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.processes() == {}
    assert "the run has ended: worker:0 succeeded, killed by SIGKILL" in done.stdout
    assert run.state("worker:1")["state"] == "STOPPED"
    table.record("12 a worker hangs after the chief's end: stopped", ended_after(run, "worker:0"))


def test_what_is_deaf_to_sigterm_is_stopped_with_all_its_children(training):
    run = training("never_ends.py", "--steps=1000000")
    run.beside("train_async.py")
    run.start().trains()
    (own,) = [pid for pid in run.processes() if pid == run.pid("worker:1")]
    sleepers = [pid for pid, command in run.processes().items() if command.startswith("sleep")]
    assert own and len(sleepers) == 2
    fault = Fault(run)
    run.ok("stop")
    assert run.processes() == {}
    fault.detected("worker:1", "STOPPED")
    fault.record("11 deaf to SIGTERM, with children, stop_grace_s = 1.5: all gone")


@pytest.mark.parametrize("saves", [True, False], ids=["saves", "loses"])
def test_a_stop_in_mid_interval(training, saves):
    asked = {"save_on_stop": saves, "stop_grace_s": 20}
    run = training("train_async.py", "--steps=1000000", "--save_steps=300", training=asked)
    run.start().trains()
    told, saved = len(steps(run.log("worker:0"))), run.saved
    patiently(lambda: len(steps(run.log("worker:0"))) > told, "another step")
    step = run.step
    said = run.ok("stop")
    if saves:
        assert run.saved >= step > saved
    else:
        assert run.saved == saved
        assert re.search(rf"the newest checkpoint is model.ckpt-{saved}, \d+s old: what came", said)
    lost = 0 if saves else step - saved
    table.record(f"36 stop in mid-interval, save_on_stop = {saves}".lower(), steps_lost=lost)


def test_a_run_that_lasts_too_long_is_ended_with_nobody_watching(training):
    run = training(STUB, "--hold", training={"max_duration_s": 5}).start()
    patiently(lambda: ended(run), "its end")
    assert set(run.states().values()) == {"STOPPED"}
    assert run.state("worker:0")["reason"].startswith("max_duration_s, 5 s, is over")
    patiently(lambda: run.processes() == {}, "the end of their supervisors")


def test_an_evaluator_has_its_grace_after_the_chiefs_end(training):
    tasks = {"workers": 1, "evaluator": True}
    words = ("--deaf", "evaluator:0", "--gate")
    run = training(STUB, *words, tasks=tasks, training={"evaluator_grace_s": 3}).start()
    (run.work("worker:0") / "go").touch()
    patiently(lambda: run.state("worker:0")["state"] == "SUCCEEDED", "the chief's success")
    patiently(lambda: ended(run), "the evaluator's end")
    assert run.state("evaluator:0")["state"] == "STOPPED"
    assert ended_after(run, "worker:0") >= 2.5
    table.record("an evaluator goes on, evaluator_grace_s = 3: ended", ended_after(run, "worker:0"))


def test_who_failed_first_is_named_first_and_last_with_what_fell_because_of_it(training):
    tasks = {"workers": 2}  # without a ps, so that nobody can do without the other
    run = training(STUB, "--steps=0", "--gate", "--exit=3", "--who", "worker:1", tasks=tasks)
    with run.begun("run") as command:
        command.says("is READY")
        (run.work("worker:1") / "go").touch()
        assert command.process.wait(timeout=100) == 1
    failed = [line for line in command.said.splitlines() if line.startswith("FAILED")]
    assert failed[0].split()[1] == "worker:1", command.said
    last = command.said[command.said.index("error: ") :]
    assert re.match(r"error: worker:1 on here: it ended: exit 3, which isn't retried", last), last
    assert re.search(r"because of it ended worker:0 on here \(worker:1 failed", last), last
    assert run.processes() == {}


def test_a_ps_that_can_not_be_restarted_ends_the_run_by_its_name(training):
    run = training(STUB, "--steps=0", "--hold", restart={"attempts": 0})
    with run.begun("run") as command:
        command.says("is READY")
        run.send(9, "ps:0")
        assert command.process.wait(timeout=100) == 1
    last = command.said[command.said.index("error: ") :]
    assert last.startswith("error: ps:0 on here: it ended: killed by SIGKILL"), last
    assert run.processes() == {}
