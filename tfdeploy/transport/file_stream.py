"""The content of large files of a host as one stream, on a connection of its own."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import ATTEMPTS, wait_before_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SILENCE_S = 60.0
CHECK_INTERVAL_S = 0.5
MAX_MESSAGES = 1 << 16  # bytes of what ssh or the host wrote about an error
# With more, the process is ended: a host must not fill the controller's disk with messages.
MESSAGES_LIMIT = 1 << 20
CONTINUES = "the same command continues where it stopped"
PIPE_BYTES = 1 << 20  # fewer, larger reads; the usual limit for unprivileged users
SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux
START = b"tfdeploy-files\n"  # before the first file: a login shell may print too
MAX_PRINTED = 1 << 16
# Standard input has two lines for each file: its first byte that is wanted, and its name. One
# process sends many files: small ones would take longer to start it than to send. After a slash, a
# name is written for `printf %b`; the dot keeps newlines at its end.
SEND = (
    'echo tfdeploy-files; cd -- "$1" || exit; shift; '
    "while IFS= read -r begin && IFS= read -r file; do "
    'case $file in /*) file=$(printf %b. "${file#/}"); file=${file%.} ;; esac; '
    'if [ "$begin" = 0 ]; then set -- "$@" "./$file"; [ $# -lt 100 ] && continue; fi; '
    '[ $# = 0 ] || cat -- "$@" || exit; set --; '
    '[ "$begin" = 0 ] || tail -c "+$((begin + 1))" <"./$file" || exit; '
    'done; [ $# = 0 ] || cat -- "$@"'
)


class SshFileStream:
    """What a host sends of files, one after the other. `is_dropped` says whether its messages mean
    that sshd dropped the handshake: then it is tried again."""

    def __init__(
        self,
        host: str,
        command: Sequence[str],
        files: Iterable[tuple[str, int]],
        is_dropped: Callable[[bytes], bool] = lambda messages: False,
    ) -> None:
        """`command` runs SEND; `files` are the names and the first bytes that are wanted."""
        self._host, self._command, self._is_dropped = host, command, is_dropped
        self._request = b"".join(b"%d\n%s\n" % (begin, _line(name)) for name, begin in files)
        self._attempt, self._received = 0, 0
        self._has_begun = False
        self._start()

    def read_into(self, buffer: memoryview, check: Callable[[], None] = lambda: None) -> int:
        """As the contract says."""
        if not self._has_begun:
            self._skip_printed(check)
        return self._read(buffer, check)

    def _skip_printed(self, check: Callable[[], None]) -> None:
        """Read until START, byte by byte: what follows is for the caller."""
        printed, byte = bytearray(), memoryview(bytearray(1))
        while not printed.endswith(START):
            if len(printed) == MAX_PRINTED or not self._read(byte, check):
                raise TransferFailed(self._host, "it sent no files")
            printed += byte
        self._has_begun = True

    def _read(self, buffer: memoryview, check: Callable[[], None]) -> int:
        while True:
            self._wait(check)
            size: int = self._output.readinto(buffer)  # type: ignore[attr-defined]
            self._received += size
            if size or self._exit_code() == 0:
                return size
            self._raise_or_start_again()

    def close(self) -> None:
        """End it, also in the middle of a file."""
        self._process.kill()
        self._process.wait()
        self._output.close()
        self._errors.close()

    def _start(self) -> None:
        self._attempt += 1
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream
        with tempfile.TemporaryFile() as request:
            request.write(self._request)
            request.seek(0)
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=request,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    bufsize=0,
                )
            except OSError as error:
                self._errors.close()
                message = f"{self._command[0]} can't be run on the controller: {error.strerror}"
                raise TransferFailed(self._host, message) from None
        assert self._process.stdout
        self._output = self._process.stdout
        if SET_PIPE_SIZE is not None:
            with suppress(OSError):
                fcntl.fcntl(self._output, SET_PIPE_SIZE, PIPE_BYTES)
        self._ready = select.poll()
        self._ready.register(self._output, select.POLLIN)

    def _wait(self, check: Callable[[], None]) -> None:
        """Wait until there is something to read, or the end."""
        deadline = time.monotonic() + SILENCE_S
        while True:
            self._limit_messages()
            if self._ready.poll(CHECK_INTERVAL_S * 1000):
                return
            check()
            if time.monotonic() > deadline:
                raise TransferFailed(self._host, f"it sent nothing for {SILENCE_S:g} s", CONTINUES)

    def _exit_code(self) -> int:
        deadline = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline:
            self._limit_messages()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(CHECK_INTERVAL_S)
        message = "it sends nothing more, and does not end"
        raise TransferFailed(self._host, message, CONTINUES)

    def _limit_messages(self) -> None:
        if os.fstat(self._errors.fileno()).st_size > MESSAGES_LIMIT:
            self._process.kill()

    def _raise_or_start_again(self) -> None:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - MAX_MESSAGES))
        messages = self._errors.read()
        if self._received or self._attempt == ATTEMPTS or not self._is_dropped(messages):
            lines = messages.decode(errors="replace").strip().splitlines()
            details = "; ".join(lines[-2:]) or "the connection was lost"
            message = f"sending files exited with {self._process.returncode}: {details}"
            raise TransferFailed(self._host, message, CONTINUES)
        self.close()
        reason = messages.decode(errors="replace").strip()
        wait_before_retry(self._host, self._attempt, reason)
        self._start()


def _line(name: str) -> bytes:
    """Return a file's name as SEND reads it: with characters that a line, or the locale of a shell,
    can't have as octal numbers of its bytes."""
    data = os.fsencode(name)
    return data if name.isprintable() else b"/" + b"".join(b"\\0%03o" % byte for byte in data)
