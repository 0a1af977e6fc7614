"""A host by SSH, over connections that outlive the command: a keeper holds them (keeper.py).

Where there can be no keeper, everything goes on as if there were none.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy import errors
from tfdeploy.errors import CommandTimedOut, HostError, Unreachable
from tfdeploy.transport import Completed, openssh
from tfdeploy.transport.frames import ASK, BEGUN, END, ERRORS, EXIT, FAILED, INPUT, KEEP, OUTPUT
from tfdeploy.transport.reaching import hang_up, reached
from tfdeploy.transport.rsync import ByRsync
from tfdeploy.transport.way import way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.transport import Stream
    from tfdeploy.transport.frames import Frames
    from tfdeploy.transport.ssh import SshTransport

__all__ = ["KeptStream", "KeptTransport", "hang_up", "tell", "told"]
BEGUN_S = 180.0  # longer than any handshake takes
KEPT_S = 2.0
OVERTIME_S = 10.0  # the keeper itself says that a command is late


class KeptTransport(ByRsync):
    """One host. Its connection is the keeper's, and stays with it."""

    def __init__(self, host: Host, inventory: Inventory) -> None:
        super().__init__(host.name, openssh.command(host, inventory))
        self._host = host
        self._inventory = inventory
        self._direct: SshTransport | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        frames = self._begun(argv, timeout_s)
        if frames is None:
            return self._without().run(argv, stdin=stdin, timeout_s=timeout_s)
        stream = KeptStream(self.host, argv[0], frames)
        try:
            stream.send(stdin)
            stream.end_input()
            output = bytearray()
            while chunk := stream.read(timeout_s + OVERTIME_S):
                output += chunk
            ended = stream.ended()
            return Completed(ended.exit, bytes(output), ended.stderr)
        finally:
            stream.close()

    def stream(self, argv: Sequence[str]) -> Stream:
        frames = self._begun(argv, None)
        return KeptStream(self.host, argv[0], frames) if frames else self._without().stream(argv)

    def close(self) -> None:
        if self._direct:
            self._direct.close()

    def _begun(self, argv: Sequence[str], run_s: float | None) -> Frames | None:
        """A command that the keeper has begun; None where it has to be done without it."""
        leads = way(self._host, self._inventory)  # settings may have changed since the last time
        # Such a command belongs to the environment and the folder that tfdeploy was called in.
        if leads.config.proxy_command or (frames := reached()) is None:
            return None
        keep_s = self._inventory.keep_connections_s
        asked = {"way": leads.to_json(), "argv": list(argv), "run_s": run_s, "keep_s": keep_s}
        try:
            frames.send(ASK, json.dumps(asked).encode())
            kind, data = frames.next(BEGUN_S)
        except OSError:
            kind = b""
        if kind == BEGUN:
            return frames
        frames.close()
        if kind == FAILED:
            raise told(data)
        return None

    def _without(self) -> SshTransport:
        if self._direct is None:
            from tfdeploy.transport.ssh import SshTransport  # it loads Paramiko

            self._direct = SshTransport(self._host, self._inventory)
        return self._direct


class KeptStream:
    """A command that the keeper talks with."""

    def __init__(self, host: str, name: str, frames: Frames) -> None:
        self._host = host
        self._name = name
        self._frames = frames
        self._errors = bytearray()
        self._exit: int | None = None
        self._closed = False

    def send(self, data: bytes | memoryview) -> None:
        self._send(INPUT, data)

    def end_input(self) -> None:
        """It finds the end of its standard input after all that was sent."""
        self._send(END)

    def read(self, timeout_s: float | None = None) -> bytes:
        while self._exit is None and not self._closed:
            kind, data = self._next(timeout_s)
            if kind == OUTPUT:
                return data
            if kind == ERRORS:
                self._errors += data
            elif kind == EXIT:
                self._exit = int(data)
            elif kind == FAILED:
                raise told(data)
            elif not self._closed:
                raise Unreachable(self._host, "the connection was lost")
        return b""

    def ended(self) -> Completed:
        return Completed(-1 if self._exit is None else self._exit, b"", bytes(self._errors))

    def keep(self) -> None:
        with suppress(OSError):  # the keeper is gone, and the command with it
            self._frames.send(KEEP)
            self._frames.next(KEPT_S)  # then it hangs up
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
            message = f"{self._name} said nothing for {timeout_s:g} s"
            raise CommandTimedOut(self._host, message) from None


def tell(error: HostError) -> bytes:
    """An error, as the keeper sends it."""
    return json.dumps([type(error).__name__, error.host, error.message, error.hint]).encode()


def told(data: bytes) -> HostError:
    """The error that was sent."""
    name, host, message, hint = json.loads(data)
    kind: type[HostError] = getattr(errors, name)
    return kind(host, message, hint)
