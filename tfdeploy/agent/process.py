"""The processes of a task: found by the mark that each inherits, never by name; ended, verified.

Every process of a task carries MARK=<project>/<run>/<task> in its environment from birth, and
children inherit it whatever group or session they make for themselves.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import time

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

MARK = "TFDEPLOY_TASK"
KILL_WAIT_S = 5.0
DUMP_WAIT_S = 3.0


def mark(project: str, run: str, task: str) -> str:
    return "{}/{}/{}".format(project, run, task)


def members(value: str, leader: Optional[int] = None, ancestor: Optional[int] = None) -> List[int]:
    """The living processes that carry the mark, are in the session that `leader` began, or descend
    from `ancestor`: a child may clear its environment and make a session of its own."""
    wanted = "{}={}".format(MARK, value).encode()
    family = _descendants(ancestor) if ancestor else set()
    return [
        pid for pid in _pids() if _alive(pid) and (pid in family or _is_member(pid, wanted, leader))
    ]


def end(
    value: str, leader: Optional[int], grace_s: float, ancestor: Optional[int] = None
) -> List[int]:
    """TERM to all processes of the task, KILL to those left after `grace_s`; returns survivors."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
        left = members(value, leader, ancestor)
        for pid in left:
            send(pid, number)
            send(pid, signal.SIGCONT)  # one that was stopped would never hear the first
        deadline = time.monotonic() + wait_s
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = members(value, leader, ancestor)
        if not left:
            return []
    return left


def dump(value: str, leader: Optional[int]) -> None:
    """Let every Python of the task write the stacks of its threads (PYTHONFAULTHANDLER), and end,
    without a core file of all that TensorFlow holds. One that was stopped does so once it goes on.
    """
    for pid in members(value, leader):
        _no_core(pid)
        send(pid, signal.SIGABRT)
        send(pid, signal.SIGCONT)
    deadline = time.monotonic() + DUMP_WAIT_S
    while members(value, leader) and time.monotonic() < deadline:
        time.sleep(0.05)


def holder(port: int) -> Optional[int]:
    """The pid that listens on a TCP port of this host, where /proc lets us see it."""
    inodes = _listening_inodes(port)
    for pid in _pids() if inodes else []:
        if inodes & _sockets(pid):
            return pid
    return None


def described(pid: int) -> str:
    """`pid 412 (python3 train.py), worker:0 of run …` as far as it can be read."""
    command = read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    text = "pid {}".format(pid) + (" ({})".format(command[:80]) if command else "")
    found = marked(pid)
    return "{}, {} of run {} of {}".format(text, *found[::-1]) if found else text


def marked(pid: int) -> Optional[Tuple[str, str, str]]:
    """The project, run and task whose mark a process carries, if it carries one."""
    found = re.search(MARK.encode() + rb"=([^\0/]*)/([^\0/]*)/([^\0]*)", read(pid, "environ"))
    if not found:
        return None
    project, run, task = (part.decode(errors="replace") for part in found.groups())
    return project, run, task


def _pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _is_member(pid: int, wanted: bytes, leader: Optional[int]) -> bool:
    if wanted in read(pid, "environ").split(b"\0"):
        return True
    return leader is not None and _session(pid) == leader


def _descendants(ancestor: int) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for pid in _pids():
        fields = stat(pid)
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found, left = set(), [ancestor]
    while left:
        for child in children.get(left.pop(), []):
            found.add(child)
            left.append(child)
    return found


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _alive(pid: int) -> bool:
    """A zombie is not alive: it only waits for its parent to look."""
    found = stat(pid)
    return bool(found) and found[0] not in (b"Z", b"X")


def stat(pid: int) -> List[bytes]:
    """State, parent and so on: proc(5)'s stat behind the name, which may hold anything."""
    return read(pid, "stat").rpartition(b")")[2].split()


def read(pid: int, name: str) -> bytes:
    """A file of /proc/<pid>, or nothing where it can't be read."""
    try:
        with open("/proc/{}/{}".format(pid, name), "rb") as file:
            return file.read()
    except OSError:  # it ended, or belongs to someone else
        return b""


def send(pid: int, number: int) -> None:
    """Signal a process that may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _no_core(pid: int) -> None:
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
    except (OSError, ValueError):  # it ended
        pass


def _listening_inodes(port: int) -> Set[str]:
    """Source: proc(5), /proc/net/tcp: column 2 is address:port in hex, 4 the state, 10 inode."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port:
                inodes.add(row[9])
    return inodes


def _sockets(pid: int) -> Set[str]:
    folder = "/proc/{}/fd".format(pid)
    found = set()
    try:
        for name in os.listdir(folder):
            target = os.readlink(os.path.join(folder, name))
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found
