"""Keep how busy a task's GPUs are, beside its log: one line of JSON every 30 s.

It is for people who look at the run later; no decision depends on it. nvidia-smi may take seconds,
or hang in its driver, where nothing can end it. So a process of its own asks it, which holds
nothing of the task's, is no child of the supervisor, and ends with it.
"""

from __future__ import annotations

import json
import select
import time

from ...shared import TYPE_CHECKING
from ...shared.filesystem import append_line
from ...shared.records import MAX_HISTORY_BYTES
from ..machine.nvidia import GpuSampler

if TYPE_CHECKING:
    from typing import List

    from ...shared.protocol.reports import GpuUse

EVERY_S = 30.0
TICK_S = 1.0
MEBIBYTE = 1 << 20


def record(path: str, gpus: List[int], ended: int) -> None:
    """Add a line for each answer of nvidia-smi until `ended` is closed on its other side."""
    sampler, written = GpuSampler(gpus, EVERY_S), None
    while not select.select([ended], [], [], TICK_S)[0]:
        answer = sampler.read()
        if answer and answer is not written:
            written = answer
            try:
                if append_line(path, line(time.time(), answer), MAX_HISTORY_BYTES, every_second):
                    sampler.every_s *= 2
            except OSError:  # a full disk costs lines
                pass
    sampler.close()


def line(at: float, gpus: List[GpuUse]) -> bytes:
    """Return a line: for each GPU its index, percent, and MiB of memory, used and in all. Pure."""
    rows = [
        [gpu.index, gpu.busy_percent, gpu.used_bytes // MEBIBYTE, gpu.total_bytes // MEBIBYTE]
        for gpu in gpus
    ]
    return json.dumps({"at": round(at, 1), "gpus": rows}, separators=(",", ":")).encode() + b"\n"


def every_second(lines: List[bytes]) -> List[bytes]:
    """Halve the resolution: the whole time that the lines cover stays covered. Pure."""
    return lines[::2]
