"""Commands on one host, each with an ssh process; they share a master's connection."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import Unreachable
from tfdeploy.transport import CLOCK
from tfdeploy.transport.openssh import messages
from tfdeploy.transport.openssh.master import end, is_listening
from tfdeploy.transport.process_stream import ProcessStream

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        return self._path is None or is_listening(self._path)

    def __len__(self) -> int:
        """Return 1 if there is a connection to keep."""
        return int(any(not session.has_exited for session in self._sessions))

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
            end(self.host, self._path)
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
