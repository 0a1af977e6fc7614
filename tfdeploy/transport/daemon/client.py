"""A host over SSH, with connections that outlive the command: the daemon holds them (server.py).

If no daemon can be used, commands run through the `direct` transport.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy import errors
from tfdeploy.errors import CommandTimedOut, HostError, Unreachable
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.daemon.ipc import (
    END,
    ERRORS,
    EXIT,
    FAILED,
    INPUT,
    LOG,
    OUTPUT,
    PARK,
    REQUEST,
    STARTED,
)
from tfdeploy.transport.daemon.locate import connect, stop_daemons
from tfdeploy.transport.rsync import RsyncTransfers
from tfdeploy.transport.ssh.transport import SshTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import Stream
    from tfdeploy.transport.daemon.ipc import FrameConnection
    from tfdeploy.transport.openssh.transport import OpenSshTransport

__all__ = ["DaemonStream", "DaemonTransport", "decode_error", "encode_error", "stop_daemons"]
_log = logging.getLogger(__name__)
START_TIMEOUT_S = 180.0  # longer than any handshake takes
PARK_TIMEOUT_S = 2.0
EXTRA_TIMEOUT_S = 10.0  # the daemon itself reports a timeout of the command


class DaemonTransport(RsyncTransfers):
    """One host. The daemon owns its connection and keeps it open."""

    def __init__(
        self,
        host: Host,
        inventory: Inventory,
        direct: SshTransport | OpenSshTransport | None = None,
    ) -> None:
        self._direct = direct or SshTransport(host, inventory)
        self._keep_s = inventory.keep_connections_s
        super().__init__(host.name, self._direct.transfer_command)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        frames = self._start(argv, timeout_s)
        if frames is None:
            return self._direct.run(argv, stdin=stdin, timeout_s=timeout_s)
        stream = DaemonStream(self.host, argv[0], frames)
        try:
            stream.send(stdin)
            stream.end_input()
            output = bytearray()
            while chunk := stream.read(timeout_s + EXTRA_TIMEOUT_S):
                output += chunk
            result = stream.result()
            return CompletedCommand(result.exit, bytes(output), result.stderr)
        finally:
            stream.close()

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> Stream:
        frames = self._start(argv, None, repeatable=repeatable)
        if frames is None:
            return self._direct.stream(argv)
        return DaemonStream(self.host, argv[0], frames)

    def close(self) -> None:
        self._direct.close()

    def _start(
        self, argv: Sequence[str], run_s: float | None, *, repeatable: bool = False
    ) -> FrameConnection | None:
        """Let the daemon start a command: one that ends within `run_s`, or a stream (None). Return
        None if there is no daemon, or if the host needs a direct connection."""
        route = self._direct.route()
        if route is None or (frames := connect()) is None:
            reason = "ProxyCommand" if route is None else "no connection daemon can be used"
            _log.debug("%s: this command connects by itself: %s", self.host, reason)
            return None
        request = {
            "route": route, "argv": list(argv), "run_s": run_s, "keep_s": self._keep_s,
            "repeatable": repeatable,
        }  # fmt: skip
        try:
            frames.send(REQUEST, json.dumps(request).encode())
            while (frame := frames.next(START_TIMEOUT_S))[0] == LOG:
                _log_action(frame[1])
            kind, data = frame
        except OSError:
            kind = b""
        if kind == STARTED:
            return frames
        frames.close()
        if kind == FAILED:
            raise decode_error(data)
        return None


class DaemonStream:
    """A running command of the daemon with open input and output."""

    def __init__(self, host: str, name: str, frames: FrameConnection) -> None:
        self._host = host
        self._name = name
        self._frames = frames
        self._errors = bytearray()
        self._exit: int | None = None
        self._closed = False

    def send(self, data: bytes | memoryview) -> None:
        self._send(INPUT, data)

    def end_input(self) -> None:
        """Close the command's standard input after everything that was sent."""
        self._send(END)

    def read(self, timeout_s: float | None = None) -> bytes:
        while self._exit is None and not self._closed:
            kind, data = self._next(timeout_s)
            if kind == OUTPUT:
                return data
            if kind == ERRORS:
                self._errors += data
            elif kind == LOG:
                _log_action(data)
            elif kind == EXIT:
                self._exit = int(data)
            elif kind == FAILED:
                raise decode_error(data)
            elif not self._closed:
                raise Unreachable(self._host, "the connection was lost")
        return b""

    def result(self) -> CompletedCommand:
        return CompletedCommand(-1 if self._exit is None else self._exit, b"", bytes(self._errors))

    def park(self) -> None:
        with suppress(OSError):  # the daemon is gone, and the command with it
            self._frames.send(PARK)
            self._frames.next(PARK_TIMEOUT_S)  # the daemon closes the connection when it is parked
        self.close()

    def close(self) -> None:
        self._closed = True
        self._frames.close()

    def _send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        try:
            self._frames.send(kind, data)
        except OSError:
            raise Unreachable(self._host, "the connection was lost") from None

    def _next(self, timeout_s: float | None) -> tuple[bytes, bytes]:
        try:
            return self._frames.next(timeout_s)
        except TimeoutError:
            message = f"{self._name} wrote nothing for {timeout_s:g} s"
            raise CommandTimedOut(self._host, message) from None


def _log_action(text: bytes) -> None:
    level, _, action = text.decode(errors="replace").partition(" ")
    _log.log(int(level), "connection daemon: %s", action)


def encode_error(error: HostError) -> bytes:
    """Return an error as the daemon sends it."""
    return json.dumps([type(error).__name__, error.host, error.message, error.hint]).encode()


def decode_error(data: bytes) -> HostError:
    """Return the error that the daemon sent."""
    name, host, message, hint = json.loads(data)
    kind: type[HostError] = getattr(errors, name)
    return kind(host, message, hint)
