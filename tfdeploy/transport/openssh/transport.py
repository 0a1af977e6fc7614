"""A host over OpenSSH itself: what ssh can reach, tfdeploy reaches. Each command has an ssh
process; they share a master's connection."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import Unreachable
from tfdeploy.transport import CLOCK
from tfdeploy.transport.openssh import choice, master, messages
from tfdeploy.transport.process_stream import ProcessStream
from tfdeploy.transport.rsync import RsyncTransfers
from tfdeploy.transport.ssh import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.openssh.master import Master


_log = logging.getLogger(__name__)


class OpenSshTransport(RsyncTransfers):
    """One host; opens its master on first use, unless another command has left it open."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        super().__init__(host.name, lambda: self.open().session)
        self._host, self._inventory, self._accept_new = host, inventory, accept_new
        self._pools: dict[str, SessionPool] = {}  # by the arguments of each

    def open(self) -> Master:
        """Return the master, open: the user's own if there is one. Raises HostError."""
        is_users = choice.has_users_master(self._host, self._inventory)
        find = master.find_users if is_users else master.find
        found = find(self._host, self._inventory)
        found.open(accept_new=self._accept_new)
        return found

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        with closing(self._start(argv)) as session:
            return session.finish(stdin, timeout_s)

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> SshProcess:
        return self._start(argv)

    def route(self) -> str | None:
        """Return what the connection daemon needs to start commands; None if it must not: a
        ProxyCommand depends on the environment and the folder of this process."""
        found = self.open()
        if "proxycommand" in config.settings(found.answer):
            return None
        return json.dumps(_session_table(found))

    def close(self) -> None:
        """End what still runs. The master stays for `keep_connections_s`."""
        for pool in self._pools.values():
            pool.close()

    def _start(self, argv: Sequence[str]) -> SshProcess:
        table = _session_table(self.open())
        pool = self._pools.setdefault(json.dumps(table), SessionPool(**table))
        return pool.start(argv)


def _session_table(found: Master) -> dict[str, Any]:
    """Return the arguments of SessionPool, also for the connection daemon."""
    path = str(found.path) if found.path else None
    return {"name": found.name, "ssh": found.session, "path": path}


def login_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for a command of the user on a host, without the host's name: over
    the open master of a host that OpenSSH connects to. Raises HostError."""
    if choice.why_openssh(host, inventory):
        return OpenSshTransport(host, inventory).open().session
    return config.ssh_command(host, inventory)


SSH_ERROR = 255  # ssh's exit code for its own errors; a command may have it, too
SESSION_OPEN = b"session id"
MAX_LOG = 1 << 16
ALIVE_CACHE_S = 2.0
ALIVE_TIMEOUT_S = 5.0
CHECK_S = 0.005


class SessionPool:
    """The ssh processes to one host. `ssh` is Master.session, and `path` Master.path."""

    def __init__(self, name: str, ssh: Sequence[str], path: str | None) -> None:
        self.host = name
        self._ssh, self._path = ssh, Path(path) if path else None
        self._sessions: list[SshProcess] = []
        self._lock = threading.Lock()
        self._checked_at, self._answered = time.clock_gettime(CLOCK), True

    def start(self, argv: Sequence[str]) -> SshProcess:
        """Start a command; what ssh finds wrong is raised when its output is read."""
        command = [*self._ssh, "--", self.host, shlex.join(argv)]
        _log.debug("%s: %s", self.host, shlex.join(command[:-1]))
        session = SshProcess(self, command, argv[0])
        with self._lock:
            self._sessions = [each for each in self._sessions if not each.has_exited]
            self._sessions.append(session)
        return session

    def is_alive(self, session: SshProcess) -> bool:
        """Return whether the host still answers; ask it, unless it answered a moment ago. A master
        that gets no answer is ended: ssh would wait for its connection for a minute."""
        if session.has_exited:
            return False
        with self._lock:
            if time.clock_gettime(CLOCK) - self._checked_at > ALIVE_CACHE_S:
                self._answered = self._answers()
                self._checked_at = time.clock_gettime(CLOCK)
            return self._answered

    @property
    def has_master(self) -> bool:
        """Whether the master runs, as far as that is known."""
        return self._path is None or master.is_listening(self._path)

    def close(self) -> None:
        """End all commands. The master ends by itself when it was not used for its time."""
        for session in self._sessions:
            session.close()

    def _answers(self) -> bool:
        """Open a session. With -v, ssh says when the host has opened it, which is one round trip
        earlier than its command ends."""
        ssh, *options = self._ssh
        argv, null = [ssh, "-v", *options, "-n", "--", self.host, "exit"], subprocess.DEVNULL
        with tempfile.TemporaryFile() as log:  # the master has ssh's descriptors: a pipe stays open
            process = subprocess.Popen(argv, stdin=null, stdout=null, stderr=log)
            deadline = time.monotonic() + ALIVE_TIMEOUT_S
            answered = False
            while not answered and time.monotonic() < deadline:
                has_exited = process.poll() is not None
                answered = has_exited or SESSION_OPEN in os.pread(log.fileno(), MAX_LOG, 0)
                time.sleep(0 if answered else CHECK_S)
            process.kill()
            process.wait()
        if not answered and self._path:
            master.end(self.host, self._path)
        return answered and self.has_master


class SshProcess(ProcessStream):
    """A running command on the host."""

    def __init__(self, pool: SessionPool, command: Sequence[str], name: str) -> None:
        super().__init__(pool.host, command, name)
        self._pool = pool

    def read(self, timeout_s: float | None = None) -> bytes:
        chunk = super().read(timeout_s)
        if not chunk and not self._closed:
            self._raise_ssh_error()
        return chunk

    @property
    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def _raise_ssh_error(self) -> None:
        """Raise the error of ssh, which exits with the command's code if that is 255, too: then the
        master still runs, and ssh has printed nothing of its own."""
        result = self.result()
        if 0 <= result.exit != SSH_ERROR:
            return
        error = messages.translate(self._host, result.stderr.decode(errors="replace"))
        if error:
            raise error
        if result.exit != SSH_ERROR or not self._pool.has_master:
            raise Unreachable(self._host, "the connection was lost")
