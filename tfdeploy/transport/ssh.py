"""A host by SSH: Fabric connects, with OpenSSH's own settings and strict host keys; rsync moves."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, Unreachable
from tfdeploy.transport import Completed, openssh
from tfdeploy.transport.channels import CHUNK, Channels, completed
from tfdeploy.transport.link import connect
from tfdeploy.transport.rsync import ByRsync
from tfdeploy.transport.translate import FOREIGN, translated
from tfdeploy.transport.way import way

if TYPE_CHECKING:
    from collections.abc import Sequence

    import paramiko

    from tfdeploy.inventory import Host, Inventory

LOOK_S = 1.0
EXIT_WAIT_S = 5.0
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class SshTransport(ByRsync):
    """One host, connected to at the first use."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        super().__init__(host.name, openssh.command(host, inventory, accept_new=accept_new))
        self._channels = Channels(host.name, lambda: connect(way(host, inventory), accept_new))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        return completed(self.host, argv[0], self._channels.open(argv), stdin, timeout_s)

    def stream(self, argv: Sequence[str]) -> SshStream:
        return SshStream(self.host, argv[0], self._channels.open(argv))

    def close(self) -> None:
        self._channels.close()


class SshStream:
    """A command on the host, talked with as it goes on."""

    def __init__(self, host: str, name: str, channel: paramiko.Channel) -> None:
        self._host = host
        self._name = name
        self._channel = channel
        self._errors = b""
        self._closed = False
        # One thread may send while another reads: a timeout of the channel's would be both's.
        self._channel.settimeout(None)
        self._readable = threading.Event()
        self._channel.in_buffer.set_event(self._readable)

    def send(self, data: bytes | memoryview) -> None:
        try:
            self._channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes: quadratic
        except FOREIGN as error:
            raise translated(self._host, error) from None

    def read(self, timeout_s: float | None = None) -> bytes:
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        self._take_errors()
        while not self._readable.wait(_slice_s(deadline)):
            if time.monotonic() >= deadline:
                message = f"{self._name} said nothing for {timeout_s:g} s"
                raise CommandTimedOut(self._host, message)
            self._take_errors()
        try:
            chunk = self._channel.recv(CHUNK)
        except FOREIGN as error:
            raise translated(self._host, error) from None
        if not chunk and not self._channel.eof_received and not self._closed:
            raise Unreachable(self._host, "the connection was lost")
        return bytes(chunk)

    def ended(self) -> Completed:
        self._channel.status_event.wait(EXIT_WAIT_S)
        self._take_errors()
        return Completed(self._channel.exit_status, b"", self._errors)

    @property
    def waits(self) -> bool:
        """It goes on, and has said nothing that nobody has read."""
        over = self._channel.eof_received or self._channel.exit_status_ready()
        return not (over or self._channel.recv_ready())

    def keep(self) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        with suppress(Exception):
            self._channel.close()

    def _take_errors(self) -> None:
        """Both outputs share one SSH window: errors that nobody reads would stop the output."""
        while self._channel.recv_stderr_ready():
            self._errors = (self._errors + self._channel.recv_stderr(CHUNK))[-CHUNK:]


def _slice_s(deadline: float) -> float:
    """Until we look at the errors again."""
    return max(0.0, min(LOOK_S, deadline - time.monotonic()))
