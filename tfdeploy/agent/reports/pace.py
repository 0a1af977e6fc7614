"""Keep how fast a task trains and what its host does meanwhile, beside its log: one line of JSON
every 30 s, with counters that only grow. The difference of two lines is what happened between them.

A thread of the task's supervisor writes it; no decision depends on it. It costs a few milliseconds
of CPU time for each line.
"""

from __future__ import annotations

import glob
import json
import os
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ...shared import records
from ...shared.filesystem import append_line, every_second, read_end, read_if_possible
from ...shared.pace import Counters, newest
from ...shared.protocol.message import parse_lines
from ...shared.protocol.record import to_json
from ...shared.records import MAX_HISTORY_BYTES, Launch, Pace
from .. import paths
from ..machine import process
from ..outputs import event_files
from . import progress, usage

READ_BYTES = 1 << 13  # has more lines than five minutes
DISK_WAIT = 5  # proc(5): the column of /proc/stat's first row: iowait
# Documentation/ABI/testing/sysfs-devices-system-cpu, thermal_throttle: milliseconds.
HOT = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_total_time_ms"
# The controller's name in /proc/PID/cgroup, the counter in its cpu.stat, and a second in its unit;
# of cgroups version 2, and of version 1. Source: Documentation/admin-guide/cgroup-v2.rst and -v1.
Quota = Tuple[str, str, str, float]
QUOTAS: Sequence[Quota] = (
    ("", "/sys/fs/cgroup", "throttled_usec", 1e6),
    ("cpu", "/sys/fs/cgroup/cpu", "throttled_time", 1e9),
)


def record(
    launch: Launch,
    task_dir: str,
    pid: Callable[[], Optional[int]],
    report: Callable[[Optional[Pace]], None],
    every_s: float,
) -> None:
    """Add a line every `every_s` seconds, as long as this process lives, and `report` the pace.
    `pid` is the task's."""
    path = paths.pace_history(launch.project, launch.run, launch.task)
    processes = usage.ProcessTable(launch.project, launch.run)
    while True:
        with suppress(OSError, LookupError, ValueError):  # a full disk costs lines
            line = json.dumps(to_json(_count(launch, task_dir, processes, pid() or 0)))
            append_line(path, line.encode() + b"\n", MAX_HISTORY_BYTES, every_second)
            report(read(launch.project, launch.run, launch.task))
        time.sleep(every_s)


def read(project: str, run: str, task: str) -> Optional[Pace]:
    """Return the pace of a task in the last five minutes; None if it is not known."""
    data = read_end(paths.pace_history(project, run, task), READ_BYTES)
    return newest([*parse_lines(Counters, data)])


def _count(launch: Launch, task_dir: str, processes: usage.ProcessTable, pid: int) -> Counters:
    with open("/proc/stat", "rb") as file:
        cpu = file.readline().split()
    network, memory = _segments(), _table("/proc/vmstat")
    return Counters(
        at=round(time.time(), 3),
        step=_step(launch, task_dir),
        cpus=os.cpu_count() or 1,
        busy_s=sum(int(cpu[column]) for column in usage.BUSY) * usage.TICK_S,
        own_s=sum(cpu_s for cpu_s, _ in processes.read().values()),
        disk_wait_s=int(cpu[DISK_WAIT]) * usage.TICK_S,
        swapped_bytes=(memory["pswpin"] + memory["pswpout"]) * usage.PAGE_BYTES,
        segments_sent=network["OutSegs"],
        segments_resent=network["RetransSegs"],
        hot_s=max((int(read_if_possible(path) or 0) for path in glob.glob(HOT)), default=0) / 1e3,
        stopped_s=stopped_s(process.read(pid, "cgroup")),
        gpu_problems=gpu_problems(task_dir),
    )


def gpu_problems(task_dir: str) -> List[str]:
    """Return what may be wrong with the GPUs of a task, as history.py has stored it."""
    return records.read_or_empty(list, paths.gpu_problems(task_dir))


def _step(launch: Launch, task_dir: str) -> Optional[int]:
    """Return how many steps the task has reported; as the controller reads it (position_of)."""
    said = progress.read_log(paths.log(launch.project, launch.run, launch.task))
    if said.epoch is not None and said.epochs:
        batches = said.batches or 0
        return (said.epoch - 1) * batches + (said.batch or 0) if batches else None
    last = progress.last_step(event_files.of_task(task_dir, launch.directory.checkpoint_dir))
    return last.step if last else said.batch if said.step is None else said.step


def _segments() -> Dict[str, int]:
    """Return the counters of TCP. Source: proc(5), /proc/net/snmp: two rows, names and numbers."""
    with open("/proc/net/snmp") as file:
        names, numbers = (line.split()[1:] for line in file if line.startswith("Tcp:"))
    return dict(zip(names, map(int, numbers)))  # noqa: B905 - Python 3.8 has no strict


def _table(path: str) -> Dict[str, int]:
    """Return a file with a name and a number in each line."""
    with open(path) as file:
        return {name: int(number) for name, number in (line.split() for line in file)}


def stopped_s(cgroup: bytes, quotas: Sequence[Quota] = QUOTAS) -> float:
    """Return for how long CPU quotas have stopped a task, by its /proc/PID/cgroup; 0.0 without."""
    rows = (line.split(":", 2) for line in cgroup.decode().splitlines())
    groups = {name: path for _, names, path in rows for name in names.split(",")}
    for controller, root, counter, second in quotas:
        try:
            stat = _table("{}/{}/cpu.stat".format(root, groups[controller]))
            return stat[counter] / second
        except (OSError, LookupError, ValueError):
            continue
    return 0.0
