"""The verb `load`: CPU seconds of a run's tasks and of the whole host, and its network bytes."""

from __future__ import annotations

import os
import time

from .. import TYPE_CHECKING
from ..protocol.reports import Load
from . import process

if TYPE_CHECKING:
    from typing import Dict, Iterator, Tuple

NET, STAT = "/proc/net/dev", "/proc/stat"
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# proc(5), stat, after the name: utime, stime, and those of children that were waited for.
CPU_FIELDS = slice(11, 15)
RECEIVED, SENT = 0, 8  # the columns of NET
# The columns of STAT's first row: user, nice, system; irq, softirq, steal.
BUSY = (1, 2, 3, 6, 7, 8)


def host_load(project: str, run: str) -> Load:
    """Read the counters of this host: the difference of two answers is the load between them.

    Loopback is included in the network's bytes, because tasks of one host communicate over it.
    """
    received, sent = network_bytes(NET)
    cpu_s: Dict[str, float] = {}
    for task, seconds in _process_cpu_s(project, run):
        cpu_s[task] = cpu_s.get(task, 0.0) + seconds
    return Load(
        at=time.monotonic(), cpu_s=cpu_s, busy_s=cpu_busy_s(STAT), received=received, sent=sent
    )


def network_bytes(path: str) -> Tuple[int, int]:
    """Return the bytes received and sent by all interfaces.

    Source: proc(5), /proc/net/dev: two header lines, then `name: ` and eight columns each for
    receiving and sending.
    """
    with open(path, encoding="ascii") as file:
        rows = [line.rpartition(":")[2].split() for line in file.readlines()[2:]]
    return sum(int(row[RECEIVED]) for row in rows), sum(int(row[SENT]) for row in rows)


def cpu_busy_s(path: str) -> float:
    """Return the CPU seconds of all processes since the boot. Source: proc(5), /proc/stat."""
    with open(path, encoding="ascii") as file:
        row = file.readline().split()
    return sum(int(row[column]) for column in BUSY) * TICK_S


def _process_cpu_s(project: str, run: str) -> Iterator[Tuple[str, float]]:
    """Yield the task and the CPU seconds of each live process of the run."""
    for name in os.listdir("/proc"):
        mark = process.read_mark(int(name)) if name.isdecimal() else None
        if mark and mark[:2] == (project, run):
            ticks = process.stat(int(name))[CPU_FIELDS]
            yield mark[2], sum(int(tick) for tick in ticks) * TICK_S
