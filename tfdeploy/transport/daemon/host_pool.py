"""The daemon's pool for one host: its open connections, and parked commands for later clients."""

from __future__ import annotations

import json
import logging
import shlex
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from tfdeploy.errors import HostError
from tfdeploy.transport import CLOCK, Stream
from tfdeploy.transport.daemon import client_log
from tfdeploy.transport.daemon.client import encode_error
from tfdeploy.transport.daemon.ipc import FAILED, INPUT, STARTED
from tfdeploy.transport.daemon.reusable_command import ReusableCommand, result_frames
from tfdeploy.transport.openssh.transport import SessionPool
from tfdeploy.transport.ssh.channels import ChannelPool
from tfdeploy.transport.ssh.config import Route
from tfdeploy.transport.ssh.connection import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.daemon.ipc import FrameConnection

_log = logging.getLogger(__name__)
MAX_PARKED = 2


class HostCommand(Stream, Protocol):
    """A running command on the host."""

    @property
    def is_idle(self) -> bool:
        """Whether it runs, and all of its output was read."""
        ...

    def finish(self, stdin: bytes, timeout_s: float) -> CompletedCommand:
        """Send it its input and wait for its end. Raises HostError."""
        ...


class Connections(Protocol):
    """The connections to one host: Fabric's channels, or ssh processes that share a master."""

    host: str

    def start(self, argv: Sequence[str]) -> Any:
        """Start a command, and return it as a HostCommand. Raises HostError."""
        ...

    def is_alive(self, command: Any) -> bool:
        """Return whether the host still answers on the connection of a command."""
        ...

    def close(self) -> None: ...


class HostPool:
    """One route to a host. Each client is served in its own thread."""

    def __init__(self, route_json: str) -> None:
        self.last_used = 0.0
        self._keep_s = 0.0
        self._clients = 0
        self._connections = self._make_connections(json.loads(route_json))
        self._parked: list[ReusableCommand] = []
        self._lock = threading.Lock()

    @property
    def is_in_use(self) -> bool:
        return self._clients > 0

    @property
    def is_expired(self) -> bool:
        return time.clock_gettime(CLOCK) - self.last_used > self._keep_s

    def enter(self, keep_s: float) -> None:
        """Add a client; connections stay open for `keep_s` seconds after the last one left."""
        self._clients += 1
        self._keep_s = keep_s

    def leave(self) -> None:
        self._clients -= 1
        self.last_used = time.clock_gettime(CLOCK)

    def serve(
        self, frames: FrameConnection, argv: Sequence[str], run_s: float | None, repeatable: bool
    ) -> None:
        """Run a command to its end within `run_s` seconds, or stream it (None)."""
        try:
            with client_log.sent_to(frames):
                if run_s is None:
                    self._stream(frames, argv, repeatable)
                else:
                    self._run(frames, argv, run_s)
        except HostError as error:
            frames.send(FAILED, encode_error(error))

    def close_exited(self) -> None:
        """Close parked commands that have exited."""
        with self._lock:
            exited = [command for command in self._parked if not command.is_idle]
            self._parked = [command for command in self._parked if command not in exited]
        for command in exited:
            command.close()

    def close(self) -> None:
        for command in self._parked:
            command.close()
        self._connections.close()

    def _make_connections(self, table: dict[str, Any]) -> Connections:
        if "ssh" in table:
            return SessionPool(**table)
        route = Route.from_table(table)
        return ChannelPool(route.name, lambda: connect(route, accept_new=False))

    def _run(self, frames: FrameConnection, argv: Sequence[str], run_s: float) -> None:
        with closing(self._connections.start(argv)) as command:
            frames.send(STARTED)  # OSError: the client is gone
            stdin = _read_input(frames)
            threading.Thread(target=_close_with, args=(frames, command), daemon=True).start()
            for kind, data in result_frames(command.finish(stdin, run_s)):
                frames.send(kind, data)

    def _stream(self, frames: FrameConnection, argv: Sequence[str], repeatable: bool) -> None:
        command = self._take_parked(shlex.join(argv), repeatable)
        command = command or ReusableCommand(argv, self._connections)
        is_parked = False
        try:
            frames.send(STARTED)  # OSError: the client is gone
            is_parked = command.serve(frames, repeatable)
        finally:
            if is_parked:
                self._park(command)
            else:
                command.close()

    def _take_parked(self, text: str, repeatable: bool) -> ReusableCommand | None:
        """Return a parked command with the same text, if it is idle.

        Asking whether its host still answers takes a round trip. If the input is repeatable, a
        lost connection is noticed early enough by its missing answer.
        """
        self.close_exited()
        with self._lock:
            command = next((command for command in self._parked if command.text == text), None)
            if command:
                self._parked.remove(command)
        if command and not ((repeatable or command.is_alive()) and command.is_idle):
            command.close()
            return None
        if command:
            _log.debug("%s: a waiting agent is used again", self._connections.host)
        return command

    def _park(self, command: ReusableCommand) -> None:
        with self._lock:
            self._parked.append(command)
            oldest = self._parked.pop(0) if len(self._parked) > MAX_PARKED else None
        if oldest:
            oldest.close()


def _read_input(frames: FrameConnection) -> bytes:
    """Return the whole standard input of a command."""
    data = bytearray()
    while (frame := frames.next())[0] == INPUT:
        data += frame[1]
    return bytes(data)


def _close_with(frames: FrameConnection, command: HostCommand) -> None:
    """End the command when the client leaves."""
    frames.next()
    command.close()
