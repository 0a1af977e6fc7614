"""The verb `load`: CPU seconds and TCP bytes of a run's tasks, and CPU seconds of the host."""

from __future__ import annotations

import os
import time

from .. import TYPE_CHECKING
from ..machine import metrics, process
from ..protocol.reports import Connection, Load

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple


def host_load(project: str, run: str) -> Load:
    """Read the counters of this host: the difference of two answers is the load between them."""
    tasks = dict(_find_processes(project, run))
    cpu_s: Dict[str, float] = {}
    for pid, task in tasks.items():
        ticks = process.stat(pid)[metrics.CPU_FIELDS]
        if ticks:  # else it has ended
            cpu_s[task] = cpu_s.get(task, 0.0) + sum(int(tick) for tick in ticks) * metrics.TICK_S
    connections = _connections(tasks)
    return Load(time.monotonic(), cpu_s, metrics.cpu_busy_s(metrics.STAT), connections)


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


def _find_processes(project: str, run: str) -> Iterator[Tuple[int, str]]:
    """Yield the pid and the task of each live process of the run."""
    for name in os.listdir("/proc"):
        mark = process.read_mark(int(name)) if name.isdecimal() else None
        if mark and mark[:2] == (project, run):
            yield int(name), mark[2]
