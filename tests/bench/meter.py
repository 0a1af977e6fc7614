"""What a command costs this machine: wall seconds, and the CPU and memory of all that it began.

A tool may leave processes behind, on purpose: they stay in its group, and what they go on using is
seen there. Where no cgroup can be made, this process adopts what its children leave (a subreaper).
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

SAMPLE_S = 0.02  # between two looks at the memory
LINGER_S = 0.3  # what a left-behind process does right after its command is part of its cost
QUIET = 0.15  # the share of the machine that may be in use when a command begins
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """Of one command. `others` is the share of the machine that was in use as it began."""

    exit: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    others: float


class Group(Protocol):
    """The processes of one tool: those of its commands, and those that it left behind."""

    def join(self) -> None:
        """Called in a new process, which belongs to it from then on, with all its children."""

    def pids(self) -> list[int]: ...

    def cpu_s(self) -> float:
        """Used so far, by the living and the dead."""

    def memory(self) -> int:
        """Bytes of anonymous memory at this moment."""

    def remove(self) -> None: ...


def group(name: str) -> Group:
    """The best that this machine allows: a cgroup of version 1 or 2, or the family tree."""
    mounts = _cgroup_mounts()
    try:
        if "cpuacct" in mounts:
            return CgroupV1([mounts["cpuacct"] / name, mounts["memory"] / name])
        return CgroupV2(mounts["cgroup2"] / name)
    except (KeyError, OSError):
        return Family()


def run(
    group: Group,
    argv: list[str],
    env: dict[str, str],
    output: IO[bytes],
    timeout_s: float,
    folder: Path,
    look: Callable[[int], None] = lambda pid: None,
) -> Cost:
    """Run a command to its end, or kill it after `timeout_s`, and tell what it cost.

    `look` is given its pid again and again while it runs.
    """
    others = settled()
    cpu_s, began, peak = group.cpu_s(), time.monotonic(), 0
    process = subprocess.Popen(
        argv,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=group.join,
    )
    ended = os.pidfd_open(process.pid)
    while not select.select([ended], [], [], SAMPLE_S)[0]:
        peak = max(peak, group.memory())
        look(process.pid)
        if time.monotonic() - began > timeout_s:
            end(group)
    wall_s = time.monotonic() - began
    os.close(ended)
    code = process.wait()
    if group.pids():
        time.sleep(LINGER_S)
    return Cost(code, wall_s, group.cpu_s() - cpu_s, peak / 1e6, others)


def end(group: Group) -> None:
    """End what is left in it."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 2
        while (left := group.pids()) and time.monotonic() < deadline:
            for pid in left:
                _signal(pid, kind)
            time.sleep(0.05)


def settled(patience_s: float = 3.0) -> float:
    """Wait a little for a quiet moment; the share of the machine in use at the last look."""
    deadline = time.monotonic() + patience_s
    while True:
        used = _machine_s()
        time.sleep(0.25)
        share = (_machine_s() - used) / 0.25 / (os.cpu_count() or 1)
        if share < QUIET or time.monotonic() > deadline:
            return share


class CgroupV1:
    """The controllers cpuacct and memory, each a folder."""

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
    """One folder for all."""

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
        file = self._folder / "memory.stat"  # absent where the controller is not handed down
        return _stat(file, "anon") if file.exists() else _memory(self.pids())

    def remove(self) -> None:
        self._folder.rmdir()


class Family:
    """All descendants of this process, which has no children but those that are measured."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def join(self) -> None:
        pass

    def pids(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if _lives(pid)]

    def cpu_s(self) -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime + sum(map(_cpu_s, descendants(os.getpid())))

    def memory(self) -> int:
        return _memory(self.pids())

    def remove(self) -> None:
        """Bury the adopted."""
        while descendants(os.getpid()) and os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def _cgroup_mounts() -> dict[str, Path]:
    """Where each controller of version 1 is mounted, and "cgroup2"."""
    found = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        names = options.split(",") if kind == "cgroup" else [kind]
        found.update(dict.fromkeys(names, Path(where)))
    return found


def _stat(file: Path, key: str) -> int:
    pairs = (line.split() for line in file.read_text().splitlines())
    return next(int(value) for name, value in pairs if name == key)


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _lives(pid: int) -> bool:
    """One that has ended and waits to be buried doesn't."""
    return _fields(pid)[:1] not in ([], ["Z"], ["X"])


def _cpu_s(pid: int) -> float:
    """A process and its children that have ended and been waited for."""
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
    """CPU seconds that all of this machine has used; idle and waiting for disks is neither."""
    user, nice, system, _, _, *others = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, *others))) / TICKS


def _signal(pid: int, kind: signal.Signals) -> None:
    try:
        os.kill(pid, kind)
    except ProcessLookupError:
        return
