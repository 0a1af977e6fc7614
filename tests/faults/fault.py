"""A fault of a training: measure its detection, the recovery, and the lost steps."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from support.training import steps

from faults import table

if TYPE_CHECKING:
    from support.training import Training


class Fault:
    """Create it just before the fault is injected. All times are in seconds since then."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._restarts = training.restarts()
        self._log_lengths = {task: len(training.log(task)) for task in training.tasks}
        self._detected_lengths = dict(self._log_lengths)
        self.step, self._saved_step = training.step, training.saved_step
        self.detected_s: float | None = None
        self.recovered_s: float | None = None
        self.steps_lost: int | None = None
        self.at = time.monotonic()

    def start_recovery(self) -> None:
        """Measure the recovery from now on: only now a command starts it."""
        self.step, self._saved_step = self.training.step, self.training.saved_step
        self.at = time.monotonic()

    def log_since(self, task: str) -> str:
        """Return a task's log since the fault."""
        return self.training.log(task)[self._log_lengths[task] :]

    def restarted(self) -> set[str]:
        """Return the tasks that were restarted since the fault."""
        restarts = self.training.restarts()
        return {task for task, count in self._restarts.items() if restarts[task] > count}

    def wait_for_detection(self, task: str, *states: str) -> None:
        """Wait until the task's supervisor has written one of these states.

        BACKOFF may last only half a second, and on a busy machine no poll may see it: a restart
        proves it too.
        """

        def is_detected() -> bool:
            length, state = len(self.training.log(task)), self.training.state(task)
            if state["state"] in states:
                self._detected_lengths[task] = len(self.training.log(task))
                return True
            if "BACKOFF" in states and state["restarts"] > self._restarts[task]:
                return True
            # The log up to here is that of the old attempt.
            self._detected_lengths[task] = length
            return False

        self.training.until(is_detected, f"{task} in {states}")
        self.detected_s = time.monotonic() - self.at

    def wait_for_restore(self) -> None:
        """Wait until the chief has restored a checkpoint and made a further step.

        The checkpoint is the newest one that was complete at the fault, or a later one. How many
        steps that costs depends on the speed of the other workers.
        """
        chief = self.training.chief
        restored = self.training.until(
            lambda: _restored_steps(self.log_since(chief)), "a step after the restored one"
        )
        self.recovered_s = time.monotonic() - self.at
        assert restored[-1] >= self._saved_step, (restored, self._saved_step)
        # Another worker may have made steps between the chief's restoring and its log line.
        self.steps_lost = max(0, self.step - restored[-1])

    def wait_for_rejoin(self, task: str, text: str) -> None:
        """Wait until a detected task has logged `text`, and the chief a further step."""
        self.training.until(
            lambda: text in self.training.log(task)[self._detected_lengths[task] :], text
        )
        self.wait_for_next_step(len(steps(self.log_since(self.training.chief))))

    def wait_for_next_step(self, count: int = 0) -> None:
        """Wait until the chief has logged more than `count` steps since the fault."""
        chief = self.training.chief
        self.training.until(lambda: len(steps(self.log_since(chief))) > count, "a further step")
        self.recovered_s = time.monotonic() - self.at
        self.steps_lost = 0

    def record(self, fault: str) -> None:
        times = (self.detected_s, self.recovered_s, self.steps_lost)
        table.record(fault, *times, startup_s=self.training.startup_s or None)


def _restored_steps(log: str) -> list[int]:
    """Return the restored steps, if a further step follows the last of them; else []."""
    _, found, after = log.rpartition("restored step ")
    if not found or not steps(after):
        return []
    return [int(step) for step in re.findall(r"^restored step (\d+)", log, re.M)]
