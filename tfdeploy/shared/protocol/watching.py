"""What a host uses and how its tasks are, as a stream: one sample every second or more."""

from __future__ import annotations

from .. import TYPE_CHECKING
from ..records import TaskReport
from .message import LONG_LIST, Message, Request
from .reports import LogLines

if TYPE_CHECKING:
    from typing import Dict, List, Optional


class GpuUse(Message):
    """What one GPU does."""

    index: int
    """Its index on the host."""
    busy_percent: Optional[float]
    """How busy it is; null if it does not report it."""
    used_bytes: int
    """Its memory that is in use."""
    total_bytes: int
    """Its memory."""


class HostUse(Message):
    """What the whole host uses. `at` is its monotonic clock; `busy_s` are the CPU seconds of all
    processes, `received` and `sent` the bytes of all interfaces, each since the boot: subtract two
    samples. `gpus` is empty until nvidia-smi has answered."""

    at: float
    busy_s: float
    cpus: int
    used_bytes: int
    total_bytes: int
    received: int
    sent: int
    gpus: List[GpuUse]


class TaskUse(Message):
    """A task's report with its training, and what its processes use: CPU seconds since they
    started, and resident memory."""

    report: TaskReport
    cpu_s: float
    used_bytes: int


class HostSample(Message):
    """One look at a host. `logs` are the newest lines that logs gained since the sample before;
    the newest `checkpoint` is None if the chief is on another host, or has none."""

    host: HostUse
    tasks: List[TaskUse]
    logs: List[LogLines]
    checkpoint: Optional[str] = None
    checkpoint_age_s: Optional[float] = None


class Watch(Request[HostSample]):
    """Sample a host until all `tasks` have ended. Each log continues at its cursor, or starts with
    its last `lines` lines. `chief` is "" if the chief is on another host."""

    VERB = "watch"
    READS_RUN = True
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    project: str
    run: str
    tasks: List[str]
    chief: str
    lines: int
    cursors: Optional[Dict[str, str]] = None
