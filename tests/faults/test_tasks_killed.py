"""Faults 1 to 8: a task of each kind is killed or frozen, and training recovers by itself; so is a
supervisor, and `resume` restarts its task.

Its supervisor finds a frozen task by its port and kills it, whatever it is. Until then it matters
how the others wait for it, which each API does in its own way: one frozen task of each is tested.
What follows is what follows any kill -9 of that task, so it is not killed in another test.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.sshd import alive
from support.training import Training, steps

from faults.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
SAVE_STEPS = {"train_async.py": 40, "train_ps_strategy.py": 20, "train_mirrored.py": 20}
STACKS = "(most recent call first):"  # the guard may print into the line before


@dataclass(frozen=True)
class Case:
    """One task to kill.

    `restarted` are the tasks that must restart. `rejoins` is the text that the task logs when it is
    back; "" if the chief must restore its checkpoint instead.
    """

    number: int
    script: str
    task: str
    restarted: set[str]
    rejoins: str = ""

    def __str__(self) -> str:
        return f"{self.script.removesuffix('.py')}-{self.task}"


ALL = {"worker:0", "worker:1"}
# test_tasks_backup.py kills the chief of workers that mirror their variables.
KILLED = [
    Case(1, "train_async.py", "worker:1", {"worker:1"}, "\nstep "),
    Case(2, "train_async.py", "worker:0", {"worker:0"}),
    Case(2, "train_ps_strategy.py", "chief:0", {"chief:0"}),
]
FROZEN = [
    Case(3, "train_async.py", "ps:0", {"ps:0"}),
    Case(5, "train_ps_strategy.py", "worker:0", {"worker:0"}, "Started server"),
    Case(6, "train_mirrored.py", "worker:1", ALL),
]
FAULTS = [
    *((case, signal.SIGKILL, f"{case}-killed") for case in KILLED),
    *((case, signal.SIGSTOP, f"{case}-frozen") for case in FROZEN),
]


class SharedTraining:
    """One run of a script for all faults. It is replaced if a fault did not leave it READY."""

    def __init__(self, script: str, folder: Path) -> None:
        self._script, self._folder = script, folder
        self._running: Training | None = None
        self._created: list[Training] = []

    def __call__(self) -> Training:
        running, self._running = self._running, None
        if running is None or set(running.states().values()) != {"READY"}:
            self.stop()
            running = self._start()
        return running

    def return_healthy(self, training: Training) -> None:
        """Let the next test use the same run."""
        self._running = training

    def stop(self) -> None:
        for training in self._created:
            training.stop()
            left = training.processes()
            training.end()
            assert left == {}

    def _start(self) -> Training:
        flags = ("--steps=1000000", f"--save_steps={SAVE_STEPS[self._script]}")
        folder = self._folder / f"{len(self._created)}"
        # A restart's delay must not depend on the number of faults before.
        restart = {"delay_s": 0, "attempts": 1000}
        training = Training.create(self._script, folder, *flags, restart=restart)
        self._created.append(training)
        return training.start()


@pytest.fixture(scope="module")
def shared(request, tmp_path_factory) -> Iterator[SharedTraining]:
    created = SharedTraining(request.param, tmp_path_factory.mktemp("shared"))
    yield created
    created.stop()


@pytest.mark.parametrize(
    ("shared", "case", "number"), [(case.script, case, number) for case, number, _ in FAULTS],
    indirect=["shared"], ids=[name for *_, name in FAULTS],
    scope="module",  # because of `case`, the fixture would otherwise have the scope of a function
)  # fmt: skip
def test_training_recovers_after(shared, case, number):
    run = shared()
    run.wait_for_checkpoint()
    fault = Fault(run)
    run.send_signal(number, case.task)
    fault.wait_for_detection(case.task, "BACKOFF")
    if case.rejoins:
        fault.wait_for_rejoin(case.task, case.rejoins)
    else:
        fault.wait_for_restore()
    run.until(lambda: set(run.states().values()) == {"READY"}, "all READY")
    assert fault.restarted() == case.restarted
    if number == signal.SIGSTOP:
        assert run.state(case.task)["reason"].startswith("FROZEN")
        assert STACKS in fault.log_since(case.task)
    count = len(steps(fault.log_since(run.chief)))
    run.until(lambda: len(steps(fault.log_since(run.chief))) > count, "further steps")
    action = "kill -9" if number == signal.SIGKILL else "SIGSTOP"
    row = case.number if number == signal.SIGKILL else 7
    fault.record(f"{row} {action} of {case.task}, {case.script}")
    shared.return_healthy(run)


@pytest.mark.parametrize("shared", ["train_ps_strategy.py"], indirect=True)
def test_training_recovers_after_a_ps_and_a_worker_are_killed_together(shared):
    """The chief sees both at the same time, and must not hang when it ends (see inside/)."""
    run = shared()
    run.wait_for_checkpoint()
    fault = Fault(run)
    run.send_signal(signal.SIGKILL, "worker:0")
    run.send_signal(signal.SIGKILL, "ps:0")
    fault.wait_for_detection("ps:0", "BACKOFF")
    fault.wait_for_restore()
    run.until(lambda: set(run.states().values()) == {"READY"}, "all READY")
    assert fault.restarted() == {"ps:0", "worker:0", "chief:0"}
    fault.record("4 kill -9 of ps:0 and worker:0 at once, train_ps_strategy.py")
    shared.return_healthy(run)


@pytest.mark.parametrize("shared", ["train_async.py"], indirect=True)
def test_only_the_task_of_a_killed_supervisor_ends_and_resume_restarts_a_lost_ps(shared):
    run = shared()
    run.wait_for_checkpoint()
    fault, pid = Fault(run), run.pid("worker:1")
    os.kill(run.supervisor("worker:1"), signal.SIGKILL)
    run.until(lambda: not alive(pid), "the end of its task")
    task = run.status()["worker:1"]
    assert (task["state"], task["reason"]) == ("LOST", "its supervisor was killed")
    fault.wait_for_next_step(len(steps(fault.log_since("worker:0"))))
    assert fault.restarted() == set()
    fault.record("8 kill -9 of a worker's supervisor, the others")
    _assert_resume_restores_the_checkpoint_after_the_supervisor_of_the_ps_is_killed(run)
    run.until(lambda: set(run.states().values()) == {"READY"}, "all READY")
    shared.return_healthy(run)


def _assert_resume_restores_the_checkpoint_after_the_supervisor_of_the_ps_is_killed(run):
    run.wait_for_checkpoint()
    fault = Fault(run)
    os.kill(run.supervisor("ps:0"), signal.SIGKILL)
    run.until(lambda: run.status()["ps:0"]["state"] == "LOST", "LOST")
    fault.start_recovery()
    run.ok("resume")
    fault.wait_for_restore()
    fault.record("8 kill -9 of a ps's supervisor, then resume")
