"""Start programs as forks of a process that has imported what they import.

Each fork is a process with its own folder, environment, standard streams, signals and exit status.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER = Path(__file__).with_name("fork_server.py")


class ForkServer:
    """The process that has run `imports`. It exits with this process, which has its socket.

    What it prints goes to a file, which is shown if it cannot start a program.
    """

    def __init__(self, python: str, imports: str, env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open until this process exits
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(
                [python, SERVER, str(descriptor), imports], env=env, pass_fds=[descriptor],
                stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
            )  # fmt: skip

    def start(
        self, words: list[str], cwd: Path, env: Mapping[str, str], streams: tuple[int, int, int],
        *, own_session: bool = False,
    ) -> Fork:  # fmt: skip
        """Run `python WORDS` with these standard streams.

        With `own_session` it is in a session of its own, and standard input is its terminal if it
        is one.
        """
        request = {"words": words, "cwd": str(cwd), "env": {**env}, "own_session": own_session}
        text = json.dumps(request).encode()
        reading, writing = os.pipe()
        with self._lock:
            length = len(text).to_bytes(8, "big")
            socket.send_fds(self._socket, [length], [*streams, writing])
            self._socket.sendall(text)
        os.close(writing)
        return Fork(words, reading, self)

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()


class Fork:
    """A process that runs or has exited, with the methods of subprocess.Popen."""

    def __init__(self, words: list[str], status: int, server: ForkServer) -> None:
        self.args = words
        self.returncode: int | None = None
        self._status = os.fdopen(status, "rb", buffering=0)
        kind, _, number = self._status.readline().partition(b" ")
        assert kind == b"pid", f"{words} did not start\n{server.errors}"
        self.pid = int(number)

    def poll(self) -> int | None:
        """Return its exit status in subprocess's format, or None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._status.readline().split()[1])
            self._status.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
