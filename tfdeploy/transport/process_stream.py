"""A process of the controller with open input and output: a local command, or an ssh process."""

from __future__ import annotations

import math
import os
import select
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.words import endless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.errors import HostError

CHUNK = 1 << 16
MAX_OUTPUT = 256 << 20  # far above any answer: a host must not fill the controller's memory
MAX_ERRORS = 16 << 20  # the last bytes of standard error
ENDLESS_ERRORS = 1 << 20  # of a command that does not end
EXIT_WAIT_S = 5.0  # after the end of its output
NO_STATUS = -1


class ProcessStream:
    """A process in a session of its own: Ctrl-C must not reach an agent in the middle of its work.

    `name` is the command's for messages. `close` lets it exit by itself for `patience_s`.
    """

    def __init__(
        self, host: str, argv: Sequence[str], name: str, *, patience_s: float = 0.0
    ) -> None:
        self._host, self._name, self._patience_s = host, name, patience_s
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                list(argv), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, cwd=Path.home(),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise CommandFailed(host, f"{argv[0]} can't be run: {error.strerror}") from None
        self._stdin, self._stdout, self._stderr = map(
            _descriptor, (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._readable = select.poll()  # select() supports no descriptor above 1023
        self._readable.register(self._stdout, select.POLLIN)
        self._readable.register(self._stderr, select.POLLIN)
        self._errors = bytearray()
        self._closed = False
        self._reading, self._writing = threading.Lock(), threading.Lock()

    def send(self, data: bytes | memoryview) -> None:
        """As Stream says."""
        try:
            with self._writing, memoryview(data) as view:
                if self._closed:
                    raise BrokenPipeError(0, "it was closed")
                _write_all(self._stdin, view)
        except OSError as error:
            raise Unreachable(self._host, f"{self._name} has exited: {error.strerror}") from None

    def read(self, timeout_s: float | None = None) -> bytes:
        """As Stream says."""
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        with self._reading:
            while not self._closed:
                ready = self._poll(deadline)
                if self._stderr in ready:
                    self._keep_errors()
                if self._stdout in ready:
                    return os.read(self._stdout, CHUNK)
                if not ready:
                    message = f"{self._name} wrote nothing for {timeout_s:g} s"
                    raise CommandTimedOut(self._host, message)
        return b""

    def result(self, timeout_s: float = EXIT_WAIT_S) -> CompletedCommand:
        """As Stream says. A process that has not exited within `timeout_s` has no exit code."""
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read_errors()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
        self._read_errors()
        code = self._process.returncode
        return CompletedCommand(NO_STATUS if code is None else code, b"", bytes(self._errors))

    def finish(self, stdin: bytes, timeout_s: float) -> CompletedCommand:
        """Send the command its input and wait for its end. Raises CommandTimedOut, CommandFailed if
        it writes too much, and as `read`."""
        deadline = time.monotonic() + timeout_s
        threading.Thread(target=self._send_all, args=(stdin,), daemon=True).start()
        output = bytearray()
        try:
            while chunk := self.read(max(0.0, deadline - time.monotonic())):
                output += chunk
                if len(output) > MAX_OUTPUT:
                    raise CommandFailed(self._host, endless(output))
            result = self.result(max(0.0, deadline - time.monotonic()))
        except CommandTimedOut:
            raise timed_out(self._host, self._name, timeout_s, self._errors) from None
        return CompletedCommand(result.exit, bytes(output), result.stderr)

    @property
    def is_idle(self) -> bool:
        """Whether the command runs, and all of its output was read. It waits for no reader."""
        if self._closed or self._process.poll() is not None:
            return False
        output = select.poll()
        output.register(self._stdout, select.POLLIN)
        return not output.poll(0)

    def park(self) -> None:
        """As Stream says: end it."""
        self.close()

    def close(self) -> None:
        """End the command. Another thread may be sending or reading: it gets an error, or an end
        of the output."""
        self._closed = True
        self._close(self._writing, 0.0, self._process.stdin)
        try:
            self._process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close(self._writing, EXIT_WAIT_S, self._process.stdin)
        self._close(self._reading, EXIT_WAIT_S, self._process.stdout, self._process.stderr)

    def _close(self, lock: threading.Lock, wait_s: float, *pipes: IO[bytes] | None) -> None:
        """Close pipes if no thread uses them: else another file could get their descriptors."""
        if lock.acquire(timeout=wait_s):
            for pipe in pipes:
                with suppress(OSError):
                    if pipe:
                        pipe.close()
            lock.release()

    def _send_all(self, data: bytes) -> None:
        with suppress(Unreachable):  # the reader notices the end, too
            self.send(data)
        self._close(self._writing, EXIT_WAIT_S, self._process.stdin)

    def _poll(self, deadline: float) -> set[int]:
        """Return the descriptors that can be read, or have ended."""
        left_s = max(0.0, deadline - time.monotonic())
        ready = self._readable.poll(None if left_s == math.inf else math.ceil(left_s * 1000))
        return {descriptor for descriptor, _ in ready}

    def _read_errors(self) -> None:
        with self._reading:
            while not self._closed and self._stderr in self._poll(0.0):
                self._keep_errors()

    def _keep_errors(self) -> None:
        """Keep the end of standard error, which has the reason of a failure."""
        chunk = os.read(self._stderr, CHUNK)
        if not chunk:
            self._readable.unregister(self._stderr)
        self._errors += chunk
        del self._errors[:-MAX_ERRORS]


def timed_out(host: str, name: str, timeout_s: float, errors: bytes | bytearray) -> HostError:
    """Return the error of a command that has not ended in time; `errors` is what was kept of its
    standard error."""
    if len(errors) > ENDLESS_ERRORS:
        return CommandFailed(host, endless(errors))
    return CommandTimedOut(host, f"{name} gave no answer within {timeout_s:g} s")


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
