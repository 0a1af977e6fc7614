"""The one seam: what the controller needs of a way to a host, by SSH or on this machine.

A non-zero exit is data; not reaching the host is an exception (a HostError) that carries its name.
No environment crosses the seam, never a pty, a login shell or the terminal's own input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Completed:
    """How a command ended: its exit code, and the bytes it wrote."""

    exit: int
    stdout: bytes
    stderr: bytes


OnProgress = Callable[[float], None]
"""Called with the share that has arrived, from 0.0 to 1.0."""


class Stream(Protocol):
    """A command that goes on, to be talked with; `close` hangs up, which ends it."""

    def send(self, data: bytes | memoryview) -> None:
        """Write to its standard input, however long that takes."""
        ...

    def read(self, timeout_s: float | None = None) -> bytes:
        """What it has written since, at least a byte; nothing at its end.

        Raises CommandTimedOut where it stays silent for `timeout_s` (None: for ever).
        """
        ...

    def ended(self) -> Completed:
        """How it ended, once it has been read to its end: its last errors, and no output."""
        ...

    def keep(self) -> None:
        """Give it up at a moment when it waits for its next line: who streams the same command on
        this host next may go on with it. Where nothing is kept, as `close`."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """One host. Every method raises HostError where the host can't be reached or used."""

    @property
    def host(self) -> str:
        """The name that hosts.toml gives it."""
        ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Run a command to its end. Raises CommandTimedOut after `timeout_s`."""
        ...

    def stream(self, argv: Sequence[str]) -> Stream:
        """Start a command; its standard input stays open until `close`."""
        ...

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = lambda share: None,
    ) -> None:
        """Send `files` (relative to `source`) into the remote folder `dest`, links as links.

        `base` is a remote folder whose equal files need not be sent; `checksum` compares contents
        where size and time would do. Raises TransferFailed.
        """
        ...

    def pull(self, source: str, dest: Path, files: Sequence[str]) -> None:
        """Fetch regular `files` (relative to the remote `source`) into `dest`, going on with what
        an interrupted pull left there. Raises TransferFailed."""
        ...

    def close(self) -> None: ...
