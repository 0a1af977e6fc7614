"""The processes of a task: find them, end them, and verify that they have ended.

Every process of a task has MARK=<project>/<run>/<task> in its environment. Children inherit it
even if they create their own process group or session, so no process is searched by name.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import signal
import time
from contextlib import suppress
from typing import Dict, List, Optional, Set, Tuple

from ...shared import filesystem
from . import listeners

MARK = "TFDEPLOY_TASK"
PR_SET_CHILD_SUBREAPER = 36  # source: linux/prctl.h
KILL_WAIT_S = 5.0
DUMP_WAIT_S = 3.0
POLL_S = 0.05
FIRST_POLL_S = 0.005


def mark(project: str, run: str, task: str) -> str:
    """Return the value of MARK for a task."""
    return "{}/{}/{}".format(project, run, task)


def task_processes(
    value: str, leader: Optional[int] = None, ancestor: Optional[int] = None
) -> List[int]:
    """Return the pids of the live processes of a task.

    These are the processes with the mark `value`, in the session of `leader`, or descended from
    `ancestor`: a child may clear its environment and create its own session.
    """
    variable = "{}={}".format(MARK, value).encode()
    stats = {pid: stat(pid) for pid in pids()}
    family = _descendants(ancestor, stats) if ancestor else set()
    session = str(leader).encode()
    return [
        pid
        for pid, fields in stats.items()
        if _is_alive(fields)
        and (pid in family or fields[3] == session or variable in _environment(pid))
    ]


def end_all(
    value: str, leader: Optional[int], grace_s: float, ancestor: Optional[int] = None
) -> List[int]:
    """End all processes of a task and return the pids of those that survive.

    Sends SIGTERM, and SIGKILL to those that are left after `grace_s` seconds. The other arguments
    are those of `task_processes`.
    """
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
        left = task_processes(value, leader, ancestor)
        for pid in left:
            send_signal(pid, number)
            send_signal(pid, signal.SIGCONT)  # a stopped process would not handle SIGTERM
        started = time.monotonic()
        while left and time.monotonic() < started + wait_s:
            time.sleep(pause_s(time.monotonic() - started))
            left = task_processes(value, leader, ancestor)
        if not left:
            return []
    return left


def pause_s(elapsed_s: float) -> float:
    """Return the pause before the next look at processes that are about to end: most end at once,
    and each look reads all of /proc."""
    return min(POLL_S, FIRST_POLL_S + elapsed_s / 4)


def dump_stacks(value: str, leader: Optional[int]) -> None:
    """Make every Python process of the task write its threads' stacks, and end.

    This relies on PYTHONFAULTHANDLER. No core file of TensorFlow's memory is written. A stopped
    process is continued first.
    """
    for pid in task_processes(value, leader):
        _disable_core_file(pid)
        send_signal(pid, signal.SIGABRT)
        send_signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + DUMP_WAIT_S
    while task_processes(value, leader) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def adopt_orphans(adopts: bool) -> None:
    """Let processes whose parent has ended become children of this process instead of init's, if
    it is an ancestor of theirs, so that all that a task leaves behind can be found."""
    import ctypes  # most of the agent's verbs do not need it

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts))


def port_holder(port: int, likely: Optional[int] = None) -> Optional[int]:
    """Return the pid that listens on a TCP port of this host; None if there is none or /proc hides
    it. Looks at the process `likely` first."""
    inodes = {inode for _, inode in listeners.of_port(port)}
    if likely is not None and inodes & socket_inodes(likely):
        return likely
    return holder(inodes) if inodes else None


def holder(inodes: Set[str]) -> Optional[int]:
    """Return a process that has one of these sockets open; None if /proc hides it."""
    return next((pid for pid in pids() if inodes & socket_inodes(pid)), None)


def port_user(port: int) -> Optional[int]:
    """Return the user id of the process that listens on a TCP port of this host, or None."""
    return next((user for user, _ in listeners.of_port(port)), None)


def describe(pid: int) -> str:
    """Return for example `pid 412 (python3 train.py), worker:0 of run …`, as far as readable."""
    text, parts = name(pid), read_mark(pid)
    return "{}, {} of run {} of {}".format(text, *parts[::-1]) if parts else text


def name(pid: int) -> str:
    """Return for example `pid 412 (python3 train.py)`, as far as readable."""
    words = command(pid)
    return "pid {}".format(pid) + (" ({})".format(words) if words else "")


def command(pid: int) -> str:
    """Return the first 80 characters of a process's command line; "" if it is not readable."""
    words = read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return words[:80]


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_mark(pid: int) -> Optional[Tuple[str, str, str]]:
    """Return the project, run and task in a process's mark; None without a mark."""
    match = re.search(MARK.encode() + rb"=([^\0/]*)/([^\0/]*)/([^\0]*)", read(pid, "environ"))
    if not match:
        return None
    project, run, task = (part.decode(errors="replace") for part in match.groups())
    return project, run, task


def stat(pid: int) -> List[bytes]:
    """Return the fields of /proc/<pid>/stat after the name: state, parent and so on.

    Source: proc(5). The name may contain any character, so the fields are counted after its last
    parenthesis.
    """
    return read(pid, "stat").rpartition(b")")[2].split()


def read(pid: int, name: str) -> bytes:
    """Return the content of a file of /proc/<pid>; b"" if it cannot be read."""
    return filesystem.read_if_possible("/proc/{}/{}".format(pid, name))


def find_stopped(pid: int) -> Optional[int]:
    """Return a process, this one or a descendant, that a signal such as SIGSTOP has stopped; None
    if there is none. Source: proc(5), /proc/<pid>/stat and /proc/<pid>/task/<tid>/children."""
    if stat(pid)[:1] == [b"T"]:
        return pid
    children = read(pid, "task/{}/children".format(pid)).split()
    return next(filter(None, (find_stopped(int(child)) for child in children)), None)


def is_readable(pid: int) -> bool:
    """Return whether this user may see which files and sockets a process has open."""
    return os.access("/proc/{}/fd".format(pid), os.R_OK)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may already have ended."""
    with suppress(OSError):
        os.kill(pid, number)


def pids() -> List[int]:
    """Return the pids of all processes of this host."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _environment(pid: int) -> List[bytes]:
    return read(pid, "environ").split(b"\0")


def _descendants(ancestor: int, stats: Dict[int, List[bytes]]) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for pid, fields in stats.items():
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    descendants, unvisited = set(), [ancestor]
    while unvisited:
        for child in children.get(unvisited.pop(), []):
            descendants.add(child)
            unvisited.append(child)
    return descendants


def _is_alive(fields: List[bytes]) -> bool:
    """Return whether a process with this `stat` runs. A zombie has ended and only waits for its
    parent."""
    return bool(fields) and fields[0] not in (b"Z", b"X")


def _disable_core_file(pid: int) -> None:
    with suppress(OSError, ValueError):  # the process ended
        _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))


def socket_inodes(pid: int) -> Set[str]:
    """Return the inodes of the sockets that a process has open, as far as readable."""
    folder = "/proc/{}/fd".format(pid)
    inodes = set()
    with suppress(OSError):
        for name in os.listdir(folder):
            target = os.readlink(os.path.join(folder, name))
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes
