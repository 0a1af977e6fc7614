"""Faults 1 to 7: each kind of task is killed, then frozen, and training goes on by itself."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from faults.fault import Fault
from faults.training import Training, patiently, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
INTERVAL = {"train_async.py": 200, "train_ps_strategy.py": 100, "train_mirrored.py": 100}
STACKS = "Fatal Python error: Aborted"


@dataclass(frozen=True)
class Case:
    """`restarted` are those who must begin anew, `joins` what the victim says when it is back;
    "" where the chief must go back to its checkpoint."""

    number: int
    script: str
    task: str
    restarted: set[str]
    joins: str = ""

    def __str__(self) -> str:
        return f"{self.script.removesuffix('.py')}-{self.task}"


ALL = {"worker:0", "worker:1"}
CASES = [
    Case(1, "train_async.py", "worker:1", {"worker:1"}, "\nstep "),
    Case(2, "train_async.py", "worker:0", {"worker:0"}),
    Case(3, "train_async.py", "ps:0", {"ps:0"}),
    Case(4, "train_ps_strategy.py", "ps:0", {"ps:0", "chief:0"}),
    Case(5, "train_ps_strategy.py", "worker:0", {"worker:0"}, "Started server"),
    Case(2, "train_ps_strategy.py", "chief:0", {"chief:0"}),
    Case(6, "train_mirrored.py", "worker:1", ALL),
    Case(2, "train_mirrored.py", "worker:0", ALL),
]


class Shared:
    """One run a script is enough, for every fault must leave it well; else there is another."""

    def __init__(self, folder) -> None:
        self._folder = folder
        self._running: dict[str, Training] = {}
        self._made: list[Training] = []

    def __call__(self, script: str) -> Training:
        known = self._running.pop(script, None)
        if known is None or set(known.states().values()) != {"READY"}:
            self.stop()
            known = self._begun(script)
        return known

    def well(self, training: Training, script: str) -> None:
        self._running[script] = training

    def stop(self) -> None:
        for each in self._made:
            each.stopped()
            left = each.processes()
            each.end()
            assert left == {}

    def _begun(self, script: str) -> Training:
        flags = ("--steps=1000000", f"--save_steps={INTERVAL[script]}")
        folder = self._folder / f"{len(self._made)}"
        # A short window: the delay of a restart doesn't tell how many faults there were before.
        made = Training.of(script, folder, *flags, restart={"window_s": 15})
        self._made.append(made)
        return made.start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("shared"))
    yield made
    made.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_training_goes_on_after(shared, case, number):
    run = shared(case.script)
    run.trains()
    fault = Fault(run)
    run.send(number, case.task)
    fault.detected(case.task, "BACKOFF")
    if case.joins:
        fault.joined(case.task, case.joins)
    else:
        fault.restored()
    assert fault.steps_lost <= INTERVAL[case.script]
    patiently(lambda: set(run.states().values()) == {"READY"}, "all READY")
    assert fault.restarted() == case.restarted
    if number == signal.SIGSTOP:
        assert run.state(case.task)["reason"].startswith("FROZEN")
        assert STACKS in fault.said(case.task)
    told = len(steps(fault.said(run.chief)))
    patiently(lambda: len(steps(fault.said(run.chief))) > told, "further steps")
    words = "kill -9" if number == signal.SIGKILL else "SIGSTOP"
    row = case.number if number == signal.SIGKILL else 7
    fault.record(f"{row} {words} of {case.task}, {case.script}")
    shared.well(run, case.script)


def test_training_goes_on_after_a_ps_and_a_worker_are_killed_at_once(shared):
    """The chief meets both at the same time, and must not hang as it ends (see inside/)."""
    script = "train_ps_strategy.py"
    run = shared(script)
    run.trains()
    fault = Fault(run)
    run.send(signal.SIGKILL, "worker:0")
    run.send(signal.SIGKILL, "ps:0")
    fault.detected("ps:0", "BACKOFF")
    fault.restored()
    assert fault.steps_lost <= INTERVAL[script]
    patiently(lambda: set(run.states().values()) == {"READY"}, "all READY")
    assert fault.restarted() == {"ps:0", "worker:0", "chief:0"}
    fault.record(f"4 kill -9 of ps:0 and worker:0 at once, {script}")
    shared.well(run, script)
