"""The process of a ProxyCommand, which leads to a host: started as ssh starts it (sshconnect.c), by
the user's shell, with a socket as its input and output."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress
from typing import IO

from tfdeploy.transport.process_stream import CHUNK
from tfdeploy.transport.words import last_words

EXIT_WAIT_S = 1.0  # after its output has ended, or its connection was closed


class ProxyProcess:
    """A running ProxyCommand; `socket` is its other end. Its standard error is read all the time,
    so that one that prints much does not wait for a reader."""

    def __init__(self, command: str) -> None:
        shell = os.environ.get("SHELL") or "/bin/sh"
        self.socket, end = socket.socketpair()
        self._errors = bytearray()
        try:
            with end:
                self._process = subprocess.Popen(
                    [shell, "-c", f"exec {command}"],
                    stdin=end.fileno(),
                    stdout=end.fileno(),
                    stderr=subprocess.PIPE,
                )
        except OSError:
            self.socket.close()
            raise
        assert self._process.stderr
        self._reader = threading.Thread(
            target=self._read_errors, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()

    def failure(self) -> str:
        """Return why it failed, in its own words; "" if it runs or has exited with 0, as `ssh -W`
        does if the host closes the connection."""
        printed, code = self.printed(), self._process.returncode
        return (printed or f"it exited with {code}") if code else ""

    def printed(self) -> str:
        """Return the last lines of its standard error; "" if there are none."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_WAIT_S)
        if self._process.returncode is not None:
            self._reader.join(EXIT_WAIT_S)
        return last_words(bytes(self._errors)) if self._errors.strip() else ""

    def close(self) -> None:
        self.socket.close()
        self._process.terminate()
        try:
            self._process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_errors(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), CHUNK):
                self._errors += chunk
                del self._errors[:-CHUNK]
