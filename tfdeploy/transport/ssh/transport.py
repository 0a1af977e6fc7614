"""A host over SSH: Fabric connects with OpenSSH's settings, rsync transfers files."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, Unreachable
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.rsync import RsyncTransfers
from tfdeploy.transport.ssh.channels import CHUNK, ChannelPool, run_to_end
from tfdeploy.transport.ssh.ciphers import transfer_command
from tfdeploy.transport.ssh.connection import connect
from tfdeploy.transport.ssh.errors import SSH_ERRORS, translate
from tfdeploy.transport.ssh.route import resolve_route

if TYPE_CHECKING:
    from collections.abc import Sequence

    import paramiko

    from tfdeploy.config.inventory import Host, Inventory

CHECK_INTERVAL_S = 1.0
EXIT_WAIT_S = 5.0
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class SshTransport(RsyncTransfers):
    """One host; connects on first use."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        super().__init__(host.name, lambda: transfer_command(host, inventory))
        self._channels = ChannelPool(
            host.name, lambda: connect(resolve_route(host, inventory), accept_new)
        )

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        return run_to_end(self.host, argv[0], self._channels.open(argv), stdin, timeout_s)

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> SshStream:
        return SshStream(self.host, argv[0], self._channels.open(argv))

    def close(self) -> None:
        self._channels.close()


class SshStream:
    """A running command on the host with open input and output."""

    def __init__(self, host: str, name: str, channel: paramiko.Channel) -> None:
        self._host = host
        self._name = name
        self.channel = channel
        self._errors = b""
        self._closed = False
        # One thread may send while another reads; a timeout of the channel would apply to both.
        self.channel.settimeout(None)
        self._readable = threading.Event()
        self.channel.in_buffer.set_event(self._readable)

    def send(self, data: bytes | memoryview) -> None:
        try:
            self.channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes: quadratic time
        except SSH_ERRORS as error:
            raise translate(self._host, error) from None

    def read(self, timeout_s: float | None = None) -> bytes:
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        self._read_errors()
        while not self._readable.wait(_wait_s(deadline)):
            if time.monotonic() >= deadline:
                message = f"{self._name} wrote nothing for {timeout_s:g} s"
                raise CommandTimedOut(self._host, message)
            self._read_errors()
        try:
            chunk = self.channel.recv(CHUNK)
        except SSH_ERRORS as error:
            raise translate(self._host, error) from None
        if not chunk and not self.channel.eof_received and not self._closed:
            raise Unreachable(self._host, "the connection was lost")
        return bytes(chunk)

    def result(self) -> CompletedCommand:
        self.channel.status_event.wait(EXIT_WAIT_S)
        self._read_errors()
        return CompletedCommand(self.channel.exit_status, b"", self._errors)

    @property
    def is_idle(self) -> bool:
        """Whether the command runs, and all of its output was read."""
        exited = self.channel.eof_received or self.channel.exit_status_ready()
        return not (exited or self.channel.recv_ready())

    def park(self) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        with suppress(Exception):
            self.channel.close()

    def _read_errors(self) -> None:
        """Read standard error: it shares an SSH window with the output, which would stop."""
        while self.channel.recv_stderr_ready():
            self._errors = (self._errors + self.channel.recv_stderr(CHUNK))[-CHUNK:]


def _wait_s(deadline: float) -> float:
    """Return how long to wait until the errors are read again."""
    return max(0.0, min(CHECK_INTERVAL_S, deadline - time.monotonic()))
