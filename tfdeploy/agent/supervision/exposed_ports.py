"""Find the ports that a task's processes open and the guard does not cover (inside/preload/).

The guard is a library that a process loads: a static program, one that runs with another group's
rights, and one whose environment was emptied have none. It decides about TCP only.
"""

from __future__ import annotations

import os

from ...shared import TYPE_CHECKING
from ..machine import guard, listeners, process

if TYPE_CHECKING:
    from typing import Dict, List, Set

    from ..machine.listeners import ListeningSocket

MAX_NAMED = 5


class ExposedPorts:
    """The exposed ports of the task with this mark, whose first process is `leader`."""

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
        is_guarded = found.protocol == "tcp" and guard.is_loaded(pid)
        if not is_guarded and process.read(pid, "cmdline"):  # without one, it is ending
            return "{} port {} of {}".format(found.protocol, found.port, process.name(pid))
    for pid in hidden:
        if process.holder({found.inode}) is None:
            return "{} port {}, perhaps of {}".format(found.protocol, found.port, process.name(pid))
    return ""
