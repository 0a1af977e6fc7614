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

from ...shared import TYPE_CHECKING
from ...shared.filesystem import append_line
from ...shared.protocol.message import Message, parse_lines
from ...shared.protocol.record import to_json
from ...shared.records import MAX_HISTORY_BYTES, Pace
from .. import paths
from ..machine import process
from ..outputs import event_files
from . import progress, usage

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from ...shared.records import Launch

WINDOW_S = 300.0
SLACK_S = 45.0  # a line comes every 30 s
READ_BYTES = 1 << 13  # has more lines than five minutes
DISK_WAIT = 5  # proc(5): the column of /proc/stat's first row: iowait
# Documentation/ABI/testing/sysfs-devices-system-cpu, thermal_throttle: milliseconds.
HOT = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_total_time_ms"
# The controller's name in /proc/PID/cgroup, the counter in its cpu.stat, and a second in its unit;
# of cgroups version 2, and of version 1. Source: Documentation/admin-guide/cgroup-v2.rst and -v1.
QUOTAS = (("", "/sys/fs/cgroup", "throttled_usec", 1e6),
          ("cpu", "/sys/fs/cgroup/cpu", "throttled_time", 1e9))  # fmt: skip


class Counters(Message):
    """A line of a task's pace history. `at` is its host's clock, in seconds since 1970; seconds of
    CPU time are those of the whole host, `own_s` those of the run's processes on it."""

    at: float
    step: Optional[int]
    cpus: int
    busy_s: float
    own_s: float
    disk_wait_s: float
    swapped_bytes: int
    segments_sent: int
    segments_resent: int
    hot_s: float
    stopped_s: float


def record(launch: Launch, task_dir: str, pid: Callable[[], Optional[int]], every_s: float) -> None:
    """Add a line every `every_s` seconds, as long as this process lives. `pid` is the task's."""
    path = paths.pace_history(launch.project, launch.run, launch.task)
    processes = usage.ProcessTable(launch.project, launch.run)
    while True:
        try:
            line = json.dumps(to_json(_count(launch, task_dir, processes, pid() or 0)))
            append_line(path, line.encode() + b"\n", MAX_HISTORY_BYTES, lambda lines: lines[::2])
        except (OSError, LookupError, ValueError):  # a full disk costs lines
            pass
        time.sleep(every_s)


def read(project: str, run: str, task: str) -> Optional[Pace]:
    """Return the pace of a task in the last five minutes; None if it is not known."""
    data = progress.read_end(paths.pace_history(project, run, task), READ_BYTES)
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
        hot_s=max((_number(path) for path in glob.glob(HOT)), default=0) / 1e3,
        stopped_s=_stopped_s(pid),
    )


def _step(launch: Launch, task_dir: str) -> Optional[int]:
    """Return how many steps the task has reported; as the controller reads it (position_of)."""
    said = progress.read_log(paths.log(launch.project, launch.run, launch.task))
    if said.epoch is not None and said.epochs:
        batches = said.batches or 0
        return (said.epoch - 1) * batches + (said.batch or 0) if batches else None
    last = progress.last_step(event_files.of_task(task_dir, launch.checkpoint_dir))
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


def _number(path: str) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _stopped_s(pid: int) -> float:
    """Return for how long CPU quotas have stopped the cgroup of a process; 0.0 if it has none."""
    rows = (line.split(":", 2) for line in process.read(pid, "cgroup").decode().splitlines())
    groups = {name: path for _, names, path in rows for name in names.split(",")}
    for controller, root, counter, second in QUOTAS:
        try:
            stat = _table("{}/{}/cpu.stat".format(root, groups[controller]))
            return stat[counter] / second
        except (OSError, LookupError, ValueError):
            continue
    return 0.0


# Read the history


def newest(lines: List[Counters]) -> Optional[Pace]:
    """Return the pace of the last WINDOW_S seconds, or since the task was started again; None if
    there are no two lines. Pure."""
    if not lines:
        return None
    first = last = lines[-1]
    for line in reversed(lines):
        started_again = line.own_s > first.own_s or (line.step or 0) > (first.step or 0)
        if started_again or last.at - line.at > WINDOW_S + SLACK_S:
            break
        first = line
    return between(first, last) if last.at > first.at else None


def between(first: Counters, last: Counters) -> Pace:
    """Return the pace from one line to a later one. Pure."""
    seconds = last.at - first.at
    steps = None if first.step is None or last.step is None else last.step - first.step
    sent = last.segments_sent - first.segments_sent

    def rate(before: float, after: float) -> float:
        return max(0.0, after - before) / seconds

    return Pace(
        seconds=seconds,
        steps_per_s=None if steps is None else steps / seconds,
        cpus=last.cpus,
        other_cpus=max(0.0, rate(first.busy_s, last.busy_s) - rate(first.own_s, last.own_s)),
        disk_wait_cpus=rate(first.disk_wait_s, last.disk_wait_s),
        swapped_bytes_s=rate(first.swapped_bytes, last.swapped_bytes),
        resent=(last.segments_resent - first.segments_resent) / sent if sent > 0 else 0.0,
        hot=min(1.0, rate(first.hot_s, last.hot_s)),
        stopped=min(1.0, rate(first.stopped_s, last.stopped_s)),
    )
