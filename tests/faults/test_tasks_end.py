"""Faults 11, 12 and 36: whatever ends a run ends all its tasks, and the reason is reported."""

from __future__ import annotations

import re

import pytest
from support.training import STUB, steps

from faults import table
from faults.fault import Fault

pytestmark = pytest.mark.slow
# All tasks of the first end by themselves; the ps of the second waits until it is stopped, as those
# of TensorFlow do in examples/test_tensorflow2.py and, on hosts, in e2e/test_digits.py.
TASKS = [{"ps": 0, "workers": 2}, {"ps": 1, "workers": 2}]


def all_ended(run) -> bool:
    return set(run.states().values()) <= {"SUCCEEDED", "STOPPED", "FAILED"}


def seconds_to_last_end(run, first: str) -> float:
    """Return the seconds from the end of `first` to that of the last task, by the host's clock."""
    return max(run.state(task)["since"] for task in run.tasks) - run.state(first)["since"]


@pytest.mark.parametrize("tasks", TASKS, ids=["workers", "ps and workers"])
def test_all_tasks_end_after_the_chiefs_success_without_a_controller(training, tasks):
    run = training("train_stub.py", "--steps=30", tasks=tasks).start()
    run.until(lambda: all_ended(run), "the end of all tasks")
    run.until(lambda: run.processes() == {}, "the end of their supervisors")
    assert run.states()[run.chief] == "SUCCEEDED"
    assert set(run.states().values()) <= {"SUCCEEDED", "STOPPED"}
    elapsed_s = seconds_to_last_end(run, run.chief)
    what = "with a ps" if tasks["ps"] else "workers only"
    table.record(f"the chief's success without a controller, {what}: all ended", elapsed_s)


def test_a_worker_that_never_ends_is_killed_and_the_run_succeeds(training):
    run = training("never_ends.py", "--steps=30")
    run.add_script("train_stub.py")
    run.ok("push")
    done = run.tf("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.processes() == {}
    # Not in the output: `run` follows the others only for a while after the chief's end.
    end = run.state("worker:1")
    reason = "the run has ended: worker:0 succeeded; stopped by SIGKILL"
    assert (end["state"], end["reason"]) == ("STOPPED", reason)
    table.record(
        "12 a worker hangs after the chief's end: stopped", seconds_to_last_end(run, "worker:0")
    )


def test_a_task_that_ignores_sigterm_is_stopped_with_its_children(training):
    run = training("never_ends.py", "--steps=1000000")
    run.add_script("train_stub.py")
    run.start().wait_for_checkpoint()
    (own,) = [pid for pid in run.processes() if pid == run.pid("worker:1")]
    sleepers = [pid for pid, command in run.processes().items() if command.startswith("sleep")]
    assert own and len(sleepers) == 2
    fault = Fault(run)
    output = run.ok("stop")
    assert run.processes() == {}
    newest = f"the newest checkpoint is model.ckpt-{run.saved_step}, "
    assert re.search(rf"{newest}[^,]+ old; what was", output), output
    fault.wait_for_detection("worker:1", "STOPPED")
    fault.record("11 deaf to SIGTERM, with children, stop_grace_s = 1.5: all gone")


def test_a_stop_between_checkpoints_saves_if_save_on_stop_is_set(training):
    """inside/test_stop.py shows that nothing is saved if it is not set."""
    settings = {"save_on_stop": True, "stop_grace_s": 120}
    # Only the first step is saved before the stop, however long the stop takes.
    words, tasks = ("--steps=1000000", "--save_steps=1000000"), {"ps": 1, "workers": 1}
    run = training("train_async.py", *words, tasks=tasks, training=settings).start()
    run.until(lambda: run.saved_step >= 0, "the first checkpoint")
    saved = run.saved_step
    run.until(lambda: steps(run.log("worker:0"))[-1:] > [saved], "a step after it")
    step = run.step
    run.ok("stop")
    assert run.saved_step >= step > saved
    table.record("36 stop in mid-interval, save_on_stop = true", steps_lost=0)


def test_an_evaluator_gets_evaluator_grace_s_after_the_chiefs_end(training):
    tasks = {"workers": 1, "evaluator": True}
    words = ("--deaf", "evaluator:0", "--gate")
    run = training(STUB, *words, tasks=tasks, training={"evaluator_grace_s": 3}).start()
    (run.work("worker:0") / "go").touch()
    run.until(lambda: run.state("worker:0")["state"] == "SUCCEEDED", "the chief's success")
    run.until(lambda: all_ended(run), "the evaluator's end")
    assert run.state("evaluator:0")["state"] == "STOPPED"
    assert seconds_to_last_end(run, "worker:0") >= 2.5
    table.record(
        "an evaluator goes on, evaluator_grace_s = 3: ended", seconds_to_last_end(run, "worker:0")
    )


def test_the_first_failed_task_is_reported_as_the_root_cause(training):
    tasks = {"workers": 2}  # without a ps, so each worker depends on the other
    run = training(STUB, "--steps=0", "--gate", "--exit=3", "--who", "worker:1", tasks=tasks)
    with run.start_command("run") as command:
        command.wait_for_output("is READY")
        (run.work("worker:1") / "go").touch()
        assert command.process.wait() == 1
    failed = [line for line in command.output.splitlines() if line.startswith("FAILED")]
    assert failed[0].split()[1] == "worker:1", command.output
    assert run.processes() == {}


def test_a_ps_without_restarts_ends_the_run_as_its_root_cause(training):
    run = training(STUB, "--steps=0", "--hold", restart={"attempts": 0})
    with run.start_command("run") as command:
        command.wait_for_output("is READY")
        run.send_signal(9, "ps:0")
        assert command.process.wait() == 1
    last = command.output[command.output.index("error: ") :]
    assert last.startswith("error: ps:0 on here: it ended: killed by SIGKILL"), last
    assert run.processes() == {}


def test_the_workers_of_a_synchronous_run_end_with_the_one_that_has_failed_permanently(training):
    run = training("train_mirrored.py", "--raise_at=30")
    run.ok("push")
    with run.start_command("run") as command:
        assert command.process.wait() == 1
    restarts = run.restarts()
    assert restarts["worker:1"] == 1, "the same traceback, with no progress in between"
    assert restarts["worker:0"] <= 2, "it ends when worker:1 has failed"
    assert run.states() == {"worker:0": "FAILED", "worker:1": "FAILED"}
    last = command.output.rpartition("\nerror: ")[2]
    assert last.startswith("worker:1 on here: it ended after 1 restart: exit 1, twice with"), last
    assert "ValueError: a broken example" in last
    assert re.search(r"it caused the end of worker:0 on here", last), last
    assert run.processes() == {}
