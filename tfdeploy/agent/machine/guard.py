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
from . import listeners, process
from .listeners import ListeningSocket

Range = Tuple[int, int]


MAX_NAMED = 5
_held: List[socket.socket] = []


class NotLoadable(Exception):
    """The library cannot be loaded on this host; the text says why."""


def library() -> str:
    """Return the path of the library's file on this host."""
    return os.path.join(paths.agent(), "preload", os.uname().machine + ".so")


def prepare() -> str:
    """Return the path from which programs can load the library. Raises NotLoadable."""
    file = library()
    if not os.path.exists(file):
        raise NotLoadable("there is no library for the processor " + os.uname().machine)
    if any(separator in file for separator in " :"):  # source: ld.so(8), LD_PRELOAD
        raise NotLoadable("{} contains a space or a colon".format(file))
    try:
        ctypes.CDLL(file)
    except OSError as error:  # a file system may allow no programs (noexec)
        raise NotLoadable(str(error)) from None
    return file


def is_loaded(pid: int) -> bool:
    """Return whether a process has loaded the library. Source: proc(5), maps."""
    end = os.path.join("preload", os.path.basename(library()))
    lines = process.read(pid, "maps").decode(errors="replace").splitlines()
    return any(line.endswith(end) for line in lines)


COUNT = 128  # for each server that a task connects to, within the minute of TIME_WAIT
LOWEST, HIGHEST = 10_240, 19_999  # below those of `ports = "auto"`, and of other connections
TRIES = 50
FEW = 8


def hold_ports(task_dir: str) -> Range:
    """Hold COUNT free ports for this user until this process ends; return the first and the last.

    The task's directory names them. Raises OSError if there are no such ports.
    """
    first, last = _hold_ports()
    text = "{} {}".format(first, last)
    filesystem.replace_file(paths.source_ports(task_dir), text.encode())
    return first, last


def read_ports(task_dir: str) -> Optional[Range]:
    """Return the ports of a task; None if it has none."""
    try:
        text = filesystem.read_bytes(paths.source_ports(task_dir))
    except OSError:
        return None
    first, last = map(int, text.split())
    return first, last


def some_ports(ports: Range) -> List[int]:
    """Return a few of the ports: others may have a connection from one of them already."""
    first, last = ports
    start, count = os.urandom(1)[0], last - first + 1
    return [first + (start + number) % count for number in range(min(count, FEW))]


def _hold_ports() -> Range:
    for _ in range(TRIES):
        first = LOWEST + int.from_bytes(os.urandom(2), "big") % (HIGHEST - LOWEST - COUNT)
        held: List[socket.socket] = []
        try:
            for port in range(first, first + COUNT):
                held.append(_bind(port))
        except OSError:  # one of them is in use
            for each in held:
                each.close()
            continue
        _held.extend(held)
        return first, first + COUNT - 1
    raise OSError("no {} free ports in a row".format(COUNT))


def _bind(port: int) -> socket.socket:
    """Return a socket that is bound to a port of this user. Raises OSError."""
    dual_stack = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET)
    try:
        if dual_stack:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("", port))
    except OSError:
        bound.close()
        raise
    return bound


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
