"""Measure a command: wall seconds, and the CPU and memory of all processes that it starts.

A tool may leave processes running on purpose. They stay in its group, which continues to measure
them. If no cgroup can be created, this process becomes the parent of such processes (a subreaper).
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_S = 0.02  # between two measurements of the memory
LINGER_S = 0.3  # what a remaining process does right after its command is part of the cost
QUIET = 0.15  # the share of the machine's CPU that may be in use when a command starts
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """The cost of one command. `others` is the share of the CPU in use just before it started."""

    exit: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    others: float


class Group(Protocol):
    """The processes of one tool: those of its commands, and those that it leaves running."""

    def join(self) -> None:
        """Add the calling process, with all its future children."""

    def pids(self) -> list[int]: ...

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far, by running and exited processes."""

    def memory(self) -> int:
        """Return the bytes of anonymous memory now in use."""

    def remove(self) -> None: ...


def group(name: str) -> Group:
    """Return a cgroup of version 1 or 2 if one can be created, else the process tree."""
    mounts = _cgroup_mounts()
    try:
        if "cpuacct" in mounts:
            return CgroupV1([mounts["cpuacct"] / name, mounts["memory"] / name])
        return CgroupV2(mounts["cgroup2"] / name)
    except (KeyError, OSError):
        return ProcessTree()


def run(
    group: Group,
    argv: list[str],
    env: dict[str, str],
    output: IO[bytes],
    timeout_s: float,
    folder: Path,
    observe: Callable[[int], None] = lambda pid: None,
) -> Cost:
    """Run a command until it exits, or kill it after `timeout_s`, and return its cost.

    Call `observe` with its pid every SAMPLE_S seconds while it runs.
    """
    others = wait_for_idle()
    cpu_s, start_s, peak = group.cpu_s(), time.monotonic(), 0
    process = subprocess.Popen(
        argv,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=group.join,
    )
    exited = os.pidfd_open(process.pid)
    while not select.select([exited], [], [], SAMPLE_S)[0]:
        peak = max(peak, group.memory())
        observe(process.pid)
        if time.monotonic() - start_s > timeout_s:
            end(group)
    wall_s = time.monotonic() - start_s
    os.close(exited)
    code = process.wait()
    if group.pids():
        time.sleep(LINGER_S)
    return Cost(code, wall_s, group.cpu_s() - cpu_s, peak / 1e6, others)


def end(group: Group) -> None:
    """End its remaining processes: first with SIGTERM, after 2 s with SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 2
        while (remaining := group.pids()) and time.monotonic() < deadline:
            for pid in remaining:
                _signal(pid, kind)
            time.sleep(0.05)


def wait_for_idle(timeout_s: float = 3.0) -> float:
    """Wait until the machine is idle or the time is over; return the share of its CPU in use."""
    deadline = time.monotonic() + timeout_s
    while True:
        used = _machine_s()
        time.sleep(0.25)
        share = (_machine_s() - used) / 0.25 / (os.cpu_count() or 1)
        if share < QUIET or time.monotonic() > deadline:
            return share


class CgroupV1:
    """A cgroup of version 1: a folder for the controller cpuacct and one for memory."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        for folder in folders:
            folder.mkdir(exist_ok=True)

    def join(self) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text("0")

    def pids(self) -> list[int]:
        return [int(pid) for pid in (self._folders[0] / "cgroup.procs").read_text().split()]

    def cpu_s(self) -> float:
        return int((self._folders[0] / "cpuacct.usage").read_text()) / 1e9

    def memory(self) -> int:
        return _stat(self._folders[1] / "memory.stat", "total_rss")

    def remove(self) -> None:
        for folder in self._folders:
            folder.rmdir()


class CgroupV2:
    """A cgroup of version 2: one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def join(self) -> None:
        (self._folder / "cgroup.procs").write_text("0")

    def pids(self) -> list[int]:
        return [int(pid) for pid in (self._folder / "cgroup.procs").read_text().split()]

    def cpu_s(self) -> float:
        return _stat(self._folder / "cpu.stat", "usage_usec") / 1e6

    def memory(self) -> int:
        file = self._folder / "memory.stat"  # missing if the controller is not enabled for children
        return _stat(file, "anon") if file.exists() else _memory(self.pids())

    def remove(self) -> None:
        self._folder.rmdir()


class ProcessTree:
    """All descendants of this process, which has no other children."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def join(self) -> None:
        pass

    def pids(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if _is_running(pid)]

    def cpu_s(self) -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime + sum(map(_cpu_s, descendants(os.getpid())))

    def memory(self) -> int:
        return _memory(self.pids())

    def remove(self) -> None:
        """Wait for the exited processes whose parent is now this process."""
        while descendants(os.getpid()) and os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def _cgroup_mounts() -> dict[str, Path]:
    """Return the mount point of each controller of version 1, and of "cgroup2"."""
    found = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split()
        names = options.split(",") if kind == "cgroup" else [kind]
        found.update(dict.fromkeys(names, Path(mount_point)))
    return found


def _stat(file: Path, key: str) -> int:
    pairs = (line.split() for line in file.read_text().splitlines())
    return next(int(value) for name, value in pairs if name == key)


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; [] if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_running(pid: int) -> bool:
    """Return False for a process that does not exist or is a zombie."""
    return _fields(pid)[:1] not in ([], ["Z"], ["X"])


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that it has waited for."""
    return sum(map(int, _fields(pid)[11:15])) / TICKS


def _memory(pids: list[int]) -> int:
    return sum(map(_anonymous, pids))


def _anonymous(pid: int) -> int:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * PAGE


def _machine_s() -> float:
    """Return the CPU seconds used on this machine, without idle time and waiting for disks."""
    user, nice, system, _, _, *others = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, *others))) / TICKS


def _signal(pid: int, kind: signal.Signals) -> None:
    try:
        os.kill(pid, kind)
    except ProcessLookupError:
        return
