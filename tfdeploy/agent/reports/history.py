"""The history of a task, beside its log: a line of JSON for each change of its state, for what is
installed at each start, and every 30 seconds for how busy its GPUs are.

It is for people who look at the run later, and for idle_gpu_stop_s, which ends a run that hangs, or
waits for nothing, while others wait for its GPUs. A full disk costs lines, and never the task. Of
the states only the newest MAX_HISTORY_BYTES are kept.
"""

from __future__ import annotations

import json
import select
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional

from ...shared import records
from ...shared.filesystem import append_line, every_second, read_end
from ...shared.protocol.reports import GpuUse
from ...shared.records import MAX_HISTORY_BYTES, TaskState
from ..machine.devices import gpu_health, vendors
from ..machine.devices.nvidia import MEBIBYTE, NvidiaSmiSampler
from ..machine.devices.vendors import GpuUseSampler

MAX_REASON = 500
EVERY_S = 30.0
IDLE_ANSWERS = 10
OLD_S = 300.0  # what was answered before that says nothing of now
LAST_BYTES = 1 << 13  # more than a line has
LOOK_EVERY_S = 1.0


class History:
    """The file of one task; only the task's supervisor writes it. `lost` counts the changes since
    the last line that could not be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lost = 0

    def add(self, state: TaskState) -> None:
        """Append a state. Never raises OSError: the change is counted as lost instead."""
        change = {
            "at": round(state.since, 3),
            "state": state.state,
            "exit": state.exit,
            "restarts": state.restarts,
            "reason": state.reason[:MAX_REASON],
            "cause": state.cause,
            "lost": self.lost,
        }
        try:
            line = json.dumps(change).encode() + b"\n"
            append_line(self.path, line, MAX_HISTORY_BYTES)
            self.lost = 0
        except OSError:
            self.lost += 1


def record_versions(path: str, versions: Dict[str, str]) -> None:
    """Add a line with the versions of what is installed, by name. Raises OSError."""
    line = json.dumps({"at": round(time.time(), 3), "versions": versions}).encode() + b"\n"
    append_line(path, line, MAX_HISTORY_BYTES)


def record_gpus(
    path: str, problems_path: str, gpus: List[int], ended: int, idle_limit_s: Optional[float] = None
) -> None:
    """Add a line for each answer of nvidia-smi until `ended` is closed on its other side, and store
    what may be wrong with the GPUs. With `idle_limit_s`, often enough to know that the GPUs were
    idle for so long.

    nvidia-smi may take seconds, or hang in its driver, where nothing can end it. So this runs in a
    process of its own, which holds nothing of the task's, is no child of the supervisor, and ends
    with it.
    """
    every_s = min(EVERY_S, idle_limit_s / IDLE_ANSWERS) if idle_limit_s else EVERY_S
    sampler, health = vendors.sampler(gpus, every_s), gpu_health.sampler(gpus)
    record_answers(path, problems_path, sampler, health, ended, slower=1 if idle_limit_s else 2)


def record_answers(
    path: str, problems_path: str, sampler: GpuUseSampler, health: NvidiaSmiSampler, ended: int,
    slower: int, *, tick_s: float = 1.0, max_bytes: int = MAX_HISTORY_BYTES,
    clock: Callable[[], float] = time.time,
) -> None:  # fmt: skip
    """Record what these say until `ended` is closed. Whenever the file has `max_bytes`, half of its
    lines go, and the sampler is asked `slower` times as rarely."""
    written, problems = None, None
    while not select.select([ended], [], [], tick_s)[0]:
        if health.read() != problems:
            problems = health.read()
            with suppress(OSError):  # as below
                records.write(problems_path, problems)
        answer = sampler.read()
        if answer and answer is not written:
            written = answer
            with suppress(OSError):  # a full disk costs lines
                line = gpu_line(clock(), answer)
                if append_line(path, line, max_bytes, every_second):
                    sampler.every_s *= slower
    sampler.close()
    health.close()


def gpu_line(at: float, gpus: List[GpuUse]) -> bytes:
    """Return a line: for each GPU its index, percent, and MiB of memory, used and in all. Pure."""
    rows = [
        [gpu.index, gpu.busy_percent, gpu.used_bytes // MEBIBYTE, gpu.total_bytes // MEBIBYTE]
        for gpu in gpus
    ]
    return json.dumps({"at": round(at, 1), "gpus": rows}, separators=(",", ":")).encode() + b"\n"


class IdleGpus:
    """For how long the GPUs of a task have been idle, by the newest line of their history.

    Only what nvidia-smi has answered counts: if it hangs, nobody knows that they are idle, and one
    that reports no percentage (MIG) never is. Time is this supervisor's own: a clock may be set.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._line = self._newest_line()  # of an earlier start
        self._since: Optional[float] = None
        self._answered_at = 0.0
        self._looked_at = -LOOK_EVERY_S
        self._idle_s = 0.0

    def seconds(self) -> float:
        """Return for how long all GPUs of the task were at 0 %, until the newest line."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_EVERY_S:
            return self._idle_s
        self._looked_at, line = now, self._newest_line()
        if line and line != self._line:
            self._line, self._answered_at = line, now
            self._since = (self._since or now) if _is_idle(line) else None
            self._idle_s = now - self._since if self._since else 0.0
        elif now > self._answered_at + OLD_S:
            self._since, self._idle_s = None, 0.0
        return self._idle_s

    def _newest_line(self) -> bytes:
        return next(iter(read_end(self._path, LAST_BYTES).splitlines()[-1:]), b"")


def _is_idle(line: bytes) -> bool:
    try:
        return all(busy == 0 for _, busy, _, _ in json.loads(line)["gpus"])
    except (ValueError, TypeError, KeyError):  # it is being written
        return False
