"""The verb `load`: CPU seconds and TCP bytes of a run's tasks, and CPU seconds of the host."""

from __future__ import annotations

import os
import time

from .. import TYPE_CHECKING
from ..protocol.reports import Connection, Load
from . import process

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

NET, STAT = "/proc/net/dev", "/proc/stat"
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# proc(5), stat, after the name: utime, stime, and those of children that were waited for.
CPU_FIELDS = slice(11, 15)
RECEIVED, SENT = 0, 8  # the columns of NET
# The columns of STAT's first row: user, nice, system; irq, softirq, steal.
BUSY = (1, 2, 3, 6, 7, 8)


def host_load(project: str, run: str) -> Load:
    """Read the counters of this host: the difference of two answers is the load between them."""
    tasks = dict(_find_processes(project, run))
    cpu_s: Dict[str, float] = {}
    for pid, task in tasks.items():
        ticks = process.stat(pid)[CPU_FIELDS]
        if ticks:  # else it has ended
            cpu_s[task] = cpu_s.get(task, 0.0) + sum(int(tick) for tick in ticks) * TICK_S
    connections = _connections(tasks)
    return Load(time.monotonic(), cpu_s, cpu_busy_s(STAT), connections)


def _connections(tasks: Dict[int, str]) -> Optional[List[Connection]]:
    """Return the TCP connections of these processes. One that several share counts once."""
    from . import tcp_traffic  # loads socket

    counted = tcp_traffic.read_all()
    if counted is None:
        return None
    inodes = {inode: tasks[pid] for pid, inode in tcp_traffic.socket_inodes(sorted(tasks))}
    return [
        Connection(task, inode, *counted[inode])
        for inode, task in inodes.items()
        if inode in counted
    ]


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


def _find_processes(project: str, run: str) -> Iterator[Tuple[int, str]]:
    """Yield the pid and the task of each live process of the run."""
    for name in os.listdir("/proc"):
        mark = process.read_mark(int(name)) if name.isdecimal() else None
        if mark and mark[:2] == (project, run):
            yield int(name), mark[2]
