"""A moment at which something is done to a training, and what was seen since."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from faults import table
from faults.training import patiently, steps

if TYPE_CHECKING:
    from faults.training import Training


class Fault:
    """Made just before the fault is injected."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._restarts = training.restarts()
        self._lengths = {task: len(training.log(task)) for task in training.tasks}
        self._ended = dict(self._lengths)
        self.step = training.step
        self.detected_s: float | None = None
        self.recovered_s: float | None = None
        self.steps_lost: int | None = None
        self.at = time.monotonic()

    def mended(self) -> None:
        """Only now somebody does something for its recovery; it has come to its last step."""
        self.step = self.training.step
        self.at = time.monotonic()

    def said(self, task: str) -> str:
        """What stands in its log since then."""
        return self.training.log(task)[self._lengths[task] :]

    def restarted(self) -> set[str]:
        now = self.training.restarts()
        return {task for task, count in self._restarts.items() if now[task] > count}

    def detected(self, task: str, *states: str) -> None:
        """Wait until its supervisor has written one of these."""
        patiently(lambda: self.training.state(task)["state"] in states, f"{task} in {states}")
        self.detected_s = time.monotonic() - self.at
        self._ended[task] = len(self.training.log(task))

    def restored(self) -> None:
        """Wait until the chief has gone back to a checkpoint, and on from there."""
        chief = self.training.chief
        restored = patiently(lambda: _restored(self.said(chief)), "a step behind the restored one")
        self.recovered_s = time.monotonic() - self.at
        # Another worker may have gone on between the restoring and the telling of it.
        self.steps_lost = max(0, self.step - restored[-1])

    def joined(self, task: str, words: str) -> None:
        """Wait until a task whose end was detected says this, and the chief a further step."""
        patiently(lambda: words in self.training.log(task)[self._ended[task] :], words)
        self.went_on(len(steps(self.said(self.training.chief))))

    def went_on(self, told: int = 0) -> None:
        """Wait until the chief has told another step than the first `told` ones."""
        chief = self.training.chief
        patiently(lambda: len(steps(self.said(chief))) > told, "a further step")
        self.recovered_s = time.monotonic() - self.at
        self.steps_lost = 0

    def record(self, fault: str) -> None:
        times = (self.detected_s, self.recovered_s, self.steps_lost)
        table.record(fault, *times, startup_s=self.training.startup_s or None)


def _restored(said: str) -> list[int]:
    """The steps that were gone back to, once a further one has been told behind the last."""
    _, found, behind = said.rpartition("restored step ")
    if not found or not steps(behind):
        return []
    return [int(step) for step in re.findall(r"^restored step (\d+)", said, re.M)]
