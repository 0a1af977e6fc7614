"""The verb `load`: the CPU seconds of a run's tasks and of all this host, and its bytes."""

from __future__ import annotations

import os
import time

from . import TYPE_CHECKING, process

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Tuple

NET, STAT = "/proc/net/dev", "/proc/stat"
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# proc(5), stat, behind the name: utime, stime, and what children used that were waited for.
SPENT = slice(11, 15)
RECEIVED, SENT = 0, 8  # the columns of NET
# The columns of STAT's first row: user, nice, system; irq, softirq, and what other guests stole.
BUSY = (1, 2, 3, 6, 7, 8)


def load(project: str, run: str) -> Dict[str, Any]:
    """`{at, cpu_s: {task: seconds}, busy_s, received, sent}`, all since some begin: who asks twice
    knows what came between. `at` is on this host's own clock, only tasks that live are told, and
    `busy_s` is of all that the host does. Bytes are those of all interfaces, loopback among them:
    between tasks of one host that is where the traffic is.
    """
    received, sent = traffic(NET)
    cpu_s: Dict[str, float] = {}
    for task, seconds in _spent(project, run):
        cpu_s[task] = cpu_s.get(task, 0.0) + seconds
    told = {"cpu_s": cpu_s, "busy_s": busy_s(STAT), "received": received, "sent": sent}
    return {"at": time.monotonic(), **told}


def traffic(path: str) -> Tuple[int, int]:
    """Bytes received and sent. Source: proc(5), /proc/net/dev: two lines of heading, then
    `name: ` and eight columns for each of both."""
    with open(path, encoding="ascii") as file:
        rows = [line.rpartition(":")[2].split() for line in file.readlines()[2:]]
    return sum(int(row[RECEIVED]) for row in rows), sum(int(row[SENT]) for row in rows)


def busy_s(path: str) -> float:
    """CPU seconds of all processes since the boot. Source: proc(5), /proc/stat."""
    with open(path, encoding="ascii") as file:
        row = file.readline().split()
    return sum(int(row[column]) for column in BUSY) * TICK_S


def _spent(project: str, run: str) -> Iterator[Tuple[str, float]]:
    """Of each living process of the run its task, and the CPU seconds that it has used."""
    for name in os.listdir("/proc"):
        found = process.marked(int(name)) if name.isdecimal() else None
        if found and found[:2] == (project, run):
            ticks = process.stat(int(name))[SPENT]
            yield found[2], sum(int(tick) for tick in ticks) * TICK_S
