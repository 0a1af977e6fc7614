"""What a run's processes and the host use: CPU time, memory, network and GPUs, from /proc."""

from __future__ import annotations

import os
import time
from typing import Dict, Tuple

from ...shared.protocol.reports import HostUse
from ..machine import process
from ..machine.nvidia import GpuSampler

NET, STAT = "/proc/net/dev", "/proc/stat"
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# proc(5), stat, after the name: utime, stime, and those of children that were waited for.
CPU_FIELDS = slice(11, 15)
RECEIVED, SENT = 0, 8  # the columns of NET
# The columns of STAT's first row: user, nice, system; irq, softirq, steal.
BUSY = (1, 2, 3, 6, 7, 8)
MEMORY = "/proc/meminfo"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RESIDENT_PAGES = 21  # proc(5), stat, after the name
LOOKS = (
    3  # a process has its task's mark only after exec: look so often before it counts as foreign
)


class ProcessTable:
    """The processes of a run on this host. A process's environment is read once, not each time:
    a host may have thousands of processes."""

    def __init__(self, project: str, run: str) -> None:
        self._owner = (project, run)
        self._tasks: Dict[int, str] = {}
        self._looks: Dict[int, int] = {}  # at processes that have no mark of this run

    def read(self) -> Dict[str, Tuple[float, int]]:
        """Return the CPU seconds and the resident bytes of each task that has processes."""
        self._find_processes()
        used: Dict[str, Tuple[float, int]] = {}
        for pid, task in self._tasks.items():
            fields = process.stat(pid)
            if len(fields) > RESIDENT_PAGES:
                cpu_s, resident = used.get(task, (0.0, 0))
                ticks = sum(int(field) for field in fields[CPU_FIELDS])
                resident += int(fields[RESIDENT_PAGES]) * PAGE_BYTES
                used[task] = (cpu_s + ticks * TICK_S, resident)
        return used

    def _find_processes(self) -> None:
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        self._tasks = {pid: task for pid, task in self._tasks.items() if pid in pids}
        self._looks = {pid: looks for pid, looks in self._looks.items() if pid in pids}
        for pid in pids - self._tasks.keys():
            if self._looks.get(pid, 0) >= LOOKS:
                continue
            mark = process.read_mark(pid)
            if mark and mark[:2] == self._owner:
                self._tasks[pid] = mark[2]
            else:
                self._looks[pid] = self._looks.get(pid, 0) + 1


class HostTable:
    """What the whole host uses."""

    def __init__(self) -> None:
        self._gpus = GpuSampler()

    def read(self) -> HostUse:
        total, available = memory_bytes(MEMORY)
        received, sent = network_bytes(NET)
        return HostUse(
            at=time.monotonic(),
            busy_s=cpu_busy_s(STAT),
            cpus=os.cpu_count() or 1,
            used_bytes=total - available,
            total_bytes=total,
            received=received,
            sent=sent,
            gpus=self._gpus.read(),
        )

    def close(self) -> None:
        self._gpus.close()


def memory_bytes(path: str) -> Tuple[int, int]:
    """Return this host's total memory, and what programs can still get of it.

    Source: proc(5), /proc/meminfo: `name: count kB`.
    """
    with open(path, encoding="ascii") as file:
        rows = dict(line.split(":", 1) for line in file)
    total, available = (int(rows[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return total * 1024, available * 1024


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
