"""What guards the ports of a task: a library, and ports that only this user has.

A task's processes load the library of inside/preload/sockets.c before any other. They connect to
other tasks from ports that this process holds as long as it lives. Sockets that are bound to a port
with SO_REUSEPORT share it only with sockets of the same user, also if those connect to others:
socket(7), and inet_csk_bind_conflict in Linux. So a connection from such a port shows other hosts
the user, without a question for each connection.
"""

from __future__ import annotations

import ctypes
import os
import socket
from typing import Dict, List, Optional, Set, Tuple

from ...shared import filesystem
from .. import paths
from . import listeners, process, sockets
from .listeners import ListeningSocket

Range = Tuple[int, int]


COPY = "tfdeploy-preload"
MAX_NAMED = 5
# The path of the library by the process that prepared it: a forked process needs its own.
_prepared: Dict[int, str] = {}
_held: List[socket.socket] = []
_local: List[Range] = []  # what hold_local_ports returns


class NotLoadable(Exception):
    """The library cannot be loaded on this host; the text says why."""


def library() -> str:
    """Return the path of the library's file on this host."""
    return os.path.join(paths.agent(), "preload", os.uname().machine + ".so")


def prepare() -> str:
    """Return a path from which programs can load the library as long as this process lives.

    That is its file, or a copy in memory: LD_PRELOAD cannot name a folder with a space, and a file
    system may allow no programs (noexec). Raises NotLoadable.
    """
    pid = os.getpid()
    if pid not in _prepared:
        file = library()
        if not os.path.exists(file):
            raise NotLoadable("there is no library for the processor " + os.uname().machine)
        error = _load_error(file)
        _prepared[pid] = file if error is None else _copy_to_memory(file, error)
    return _prepared[pid]


def is_loaded(pid: int) -> bool:
    """Return whether a process has loaded the library. Source: proc(5), maps."""
    ends = (os.path.join("preload", os.path.basename(library())), COPY + " (deleted)")
    lines = process.read(pid, "maps").decode(errors="replace").splitlines()
    return any(line.endswith(ends) for line in lines)


def _load_error(path: str) -> Optional[str]:
    """Return why programs cannot load the library from this path, or None."""
    if any(separator in path for separator in " :"):  # source: ld.so(8), LD_PRELOAD
        return "{} contains a space or a colon".format(path)
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error)
    return None


def _copy_to_memory(file: str, why: str) -> str:
    """Return the path of a copy in memory. Raises NotLoadable with `why` if that fails, too."""
    try:
        copy = os.memfd_create(COPY, 0)  # stays open if this process becomes another program
        with open(file, "rb") as source:
            os.write(copy, source.read())
    except (OSError, AttributeError):  # glibc before 2.27 has no memfd_create
        raise NotLoadable(why) from None
    path = "/proc/{}/fd/{}".format(os.getpid(), copy)
    if _load_error(path) is not None:
        os.close(copy)
        raise NotLoadable(why)
    return path


COUNT = 128  # for each server that a task connects to, within the minute of TIME_WAIT
LOWEST, HIGHEST = 10_240, 19_999  # below those of `ports = "auto"`, and of other connections
TRIES = 50
# On the host itself: it may have 16 GPUs, and each one's process connects to the first one's.
LOCAL_COUNT = 32
LOCAL_LOWEST, LOCAL_HIGHEST = 61_440, 65_535  # above those of other connections
LOCAL_TRIES = 8
FEW = 8


def hold_ports(task_dir: str) -> Range:
    """Hold COUNT free ports for this user until this process ends; return the first and the last.

    The task's directory names them. Raises OSError if there are no such ports.
    """
    for _ in range(TRIES):
        first = LOWEST + int.from_bytes(os.urandom(2), "big") % (HIGHEST - LOWEST - COUNT)
        if _hold(first, COUNT):
            text = "{} {}".format(first, first + COUNT - 1)
            filesystem.replace_file(paths.source_ports(task_dir), text.encode())
            return first, first + COUNT - 1
    raise OSError("no {} free ports in a row".format(COUNT))


def read_ports(task_dir: str) -> Optional[Range]:
    """Return the ports of a task; None if it has none."""
    numbers = filesystem.read_if_possible(paths.source_ports(task_dir)).split()
    return (int(numbers[0]), int(numbers[1])) if numbers else None


def hold_local_ports() -> Optional[Range]:
    """Hold LOCAL_COUNT ports for this user until this process ends, from which its task connects on
    this host; return the first and the last, or None if there are no such ports.

    All supervisors of a user hold the same ones: a task accepts a connection that was closed
    already only from the ports that its own supervisor holds.
    """
    if not _local and _lists_connections():
        blocks = (LOCAL_HIGHEST + 1 - LOCAL_LOWEST) // LOCAL_COUNT
        numbers = range(os.geteuid(), os.geteuid() + LOCAL_TRIES)
        firsts = [LOCAL_LOWEST + number % blocks * LOCAL_COUNT for number in numbers]
        # Those that are in use come first: another supervisor of this user may hold them.
        for first in sorted(firsts, key=_is_free):
            if _hold(first, LOCAL_COUNT):
                _local.append((first, first + LOCAL_COUNT - 1))
                break
    return _local[0] if _local else None


def _lists_connections() -> bool:
    """Return whether the kernel says from which ports there are connections: two to one server
    can't come from the same port."""
    try:
        [*listeners.ask("tcp", listeners.LISTEN, LOCAL_LOWEST, 0)]
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        sockets.bind(port, socket.SO_REUSEADDR).close()
    except OSError:
        return False
    return True


def some_ports(ports: Range) -> List[int]:
    """Return a few of the ports: others may have a connection from one of them already."""
    first, last = ports
    start, count = os.urandom(1)[0], last - first + 1
    return [first + (start + number) % count for number in range(min(count, FEW))]


def _hold(first: int, count: int) -> bool:
    """Hold these ports. Returns whether they were free, or had only sockets of this user."""
    held: List[socket.socket] = []
    try:
        for port in range(first, first + count):
            held.append(sockets.bind(port, socket.SO_REUSEPORT))
    except OSError:
        for each in held:
            each.close()
        return False
    _held.extend(held)
    return True


# What it does not cover


class ExposedPorts:
    """The ports that processes of a task open and the guard does not cover; the task has this mark,
    and its first process is `leader`.

    A static program, one that runs with another group's rights, and one whose environment was
    emptied have not loaded the library. It decides about TCP only.
    """

    def __init__(self, mark: str, leader: int) -> None:
        self._mark = mark
        self._leader = leader
        self._found: Dict[str, str] = {}  # by inode; "" for a socket that is covered, or not ours

    def find(self) -> str:
        """Return what is exposed, for users; "" for nothing.

        Only a socket that is new since the last call makes it look at processes.
        """
        current = {found.inode: found for found in listeners.of_user(os.geteuid())}
        new = [found for inode, found in current.items() if inode not in self._found]
        judged = self._judge(new) if new else {}
        known = {inode: text for inode, text in self._found.items() if inode in current}
        self._found = {**known, **judged}
        texts = sorted({text for text in self._found.values() if text})
        more = ["{} more".format(len(texts) - MAX_NAMED)] if len(texts) > MAX_NAMED else []
        return ", ".join([*texts[:MAX_NAMED], *more])

    def _judge(self, new: List[ListeningSocket]) -> Dict[str, str]:
        pids = process.task_processes(self._mark, self._leader, os.getpid())
        opened = {pid: process.socket_inodes(pid) for pid in pids}
        hidden = [pid for pid in pids if not process.is_readable(pid)]
        return {found.inode: _exposed(found, opened, hidden) for found in new}


def _exposed(found: ListeningSocket, opened: Dict[int, Set[str]], hidden: List[int]) -> str:
    """Return which process exposes a socket, "" if none of the task does."""
    for pid in (pid for pid, inodes in opened.items() if found.inode in inodes):
        is_guarded = found.protocol == "tcp" and is_loaded(pid)
        if not is_guarded and process.read(pid, "cmdline"):  # without one, it is ending
            return "{} port {} of {}".format(found.protocol, found.port, process.name(pid))
    for pid in hidden:
        if process.holder({found.inode}) is None:
            return "{} port {}, perhaps of {}".format(found.protocol, found.port, process.name(pid))
    return ""
