"""The interface between the controller and one host, over SSH or on the controller itself.

A non-zero exit code is returned as data; a host that can't be reached is an exception, a HostError
with the host's name. The interface passes no environment, no pty, no login shell, and not the
terminal's input.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

logging.getLogger("tfdeploy").addHandler(logging.NullHandler())  # a program decides what it shows
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a command: its exit code and its output."""

    exit: int
    stdout: bytes
    stderr: bytes


# A clock that continues while a laptop sleeps, if the system has one.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
OnProgress = Callable[[str, int], None]
"""Called with the file that is being transferred, and the bytes of all files transferred so far."""


def ignore_progress(file: str, transferred_bytes: int) -> None:
    """Do nothing."""


class Stream(Protocol):
    """A running command with open input and output; `close` ends it."""

    def send(self, data: bytes | memoryview) -> None:
        """Write to its standard input; block until everything is written."""
        ...

    def read(self, timeout_s: float | None = None) -> bytes:
        """Return its next output, at least one byte; b"" at its end.

        Raises CommandTimedOut after `timeout_s` without output (None: never).
        """
        ...

    def result(self) -> CompletedCommand:
        """Return its exit code and its last errors, without output, after `read` returned b""."""
        ...

    def park(self) -> None:
        """Release the command while it waits for its next line: the next `stream` of the same
        command on this host may continue with it. A transport that can't park closes it."""
        ...

    def close(self) -> None: ...


class FileStream(Protocol):
    """The content of files of a host, one after the other; `close` ends it."""

    def read_into(self, buffer: memoryview, check: Callable[[], None] = lambda: None) -> int:
        """Read what has arrived; return its size, 0 at the end. `check` is called repeatedly while
        nothing arrives, and may raise. Raises TransferFailed."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """The connection to one host. Every method raises HostError if the host can't be reached."""

    @property
    def host(self) -> str:
        """The host's name in hosts.toml."""
        ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        """Run a command to its end. Raises CommandTimedOut after `timeout_s`."""
        ...

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> Stream:
        """Start a command; its standard input stays open until `close`.

        If it is `repeatable`, what was sent before its first output may be sent once more to
        another process of it, because a connection that was kept open turned out to be lost.
        """
        ...

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        """Send `files` (relative to `source`) into the host's folder `dest`, links as links.

        A file that equals the one in `base`, another folder of the host, is copied from there.
        With `checksum`, files are compared by content instead of size and time. Raises
        TransferFailed.
        """
        ...

    def send_files(self, source: str, files: Sequence[tuple[str, int]]) -> FileStream:
        """Have the host send files of its folder `source`, one after the other, each from a byte
        on. They are regular, and do not change meanwhile."""
        ...

    def close(self) -> None: ...


ATTEMPTS = 4


def wait_before_retry(host: str, attempt: int, reason: object) -> None:
    """Wait after the `attempt`-th attempt, from 1 on, which failed for `reason`. The jitter spreads
    the retries of many hosts."""
    wait_s = random.uniform(0.2, 0.6) * 2**attempt
    _log.info("%s: attempt %d of %d failed (%s); the next one follows in %.1f s",
              host, attempt, ATTEMPTS, reason, wait_s)  # fmt: skip
    time.sleep(wait_s)
