"""The daemon's pool for one host: its open connections, and parked commands for later clients."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, HostError
from tfdeploy.transport.daemon.client import encode_error
from tfdeploy.transport.daemon.ipc import ERRORS, EXIT, FAILED, INPUT, OUTPUT, PARK, STARTED
from tfdeploy.transport.ssh.channels import ChannelPool, run_to_end
from tfdeploy.transport.ssh.connection import CLOCK, connect
from tfdeploy.transport.ssh.route import Route
from tfdeploy.transport.ssh.transport import SshStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    import paramiko

    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.daemon.ipc import FrameConnection

MAX_PARKED = 2
CHECK_INTERVAL_S = 1.0


class HostPool:
    """One route to a host. Each client is served in its own thread."""

    def __init__(self, route_json: str) -> None:
        route = Route.from_json(route_json)
        self.name = route.name
        self.last_used = 0.0
        self._keep_s = 0.0
        self._clients = 0
        self._channels = ChannelPool(route.name, lambda: connect(route, accept_new=False))
        self._parked: list[ReusableCommand] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._channels)

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

    def serve(self, frames: FrameConnection, argv: Sequence[str], run_s: float | None) -> None:
        """Run a command to its end within `run_s` seconds, or stream it (None)."""
        try:
            if run_s is None:
                self._stream(frames, argv)
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
        self._channels.close()

    def _run(self, frames: FrameConnection, argv: Sequence[str], run_s: float) -> None:
        with closing(self._channels.open(argv)) as channel:
            frames.send(STARTED)  # OSError: the client is gone
            stdin = _read_input(frames)
            threading.Thread(target=_close_with, args=(frames, channel), daemon=True).start()
            for kind, data in _result_frames(run_to_end(self.name, argv[0], channel, stdin, run_s)):
                frames.send(kind, data)

    def _stream(self, frames: FrameConnection, argv: Sequence[str]) -> None:
        command = self._take_parked(shlex.join(argv))
        command = command or ReusableCommand(self.name, argv, self._channels)
        is_parked = False
        try:
            frames.send(STARTED)  # OSError: the client is gone
            is_parked = command.serve(frames)
        finally:
            if is_parked:
                self._park(command)
            else:
                command.close()

    def _take_parked(self, text: str) -> ReusableCommand | None:
        """Return a parked command with the same text, if it is idle and the host still answers."""
        self.close_exited()
        with self._lock:
            command = next((command for command in self._parked if command.text == text), None)
            if command:
                self._parked.remove(command)
        if command and not (self._channels.is_alive() and command.is_idle):
            command.close()
            return None
        return command

    def _park(self, command: ReusableCommand) -> None:
        with self._lock:
            self._parked.append(command)
            oldest = self._parked.pop(0) if len(self._parked) > MAX_PARKED else None
        if oldest:
            oldest.close()


class ReusableCommand:
    """A command that serves one client after another; its output goes to the current one."""

    def __init__(self, host: str, argv: Sequence[str], channels: ChannelPool) -> None:
        self.text = shlex.join(argv)
        self._stream = SshStream(host, argv[0], channels.open(argv))
        self._frames: FrameConnection | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        return self._stream.is_idle

    def serve(self, frames: FrameConnection) -> bool:
        """Serve a client until it leaves; return whether it parked the command."""
        with self._lock:
            self._frames = frames
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
        while (frame := frames.next())[0] == INPUT:
            with suppress(HostError):  # the reader sends the client the error
                self._stream.send(frame[1])
        with self._lock:
            self._frames = None
        return frame[0] == PARK and self.is_idle

    def close(self) -> None:
        self._stream.close()

    def _read(self) -> None:
        """Send the output to the current client until there is none, or until the end."""
        try:
            while not self._stop_without_client():
                with suppress(CommandTimedOut):
                    chunk = self._stream.read(CHECK_INTERVAL_S)
                    if not chunk:
                        return self._send(*_result_frames(self._stream.result()))
                    self._send((OUTPUT, chunk))
        except HostError as error:
            self._send((FAILED, encode_error(error)))

    def _stop_without_client(self) -> bool:
        """Return whether there is no client; then the reader ends until the next one comes."""
        with self._lock:
            frames = self._frames
            if frames is None:
                self._reader = None
                return True
        if frames.is_peer_gone():  # even while its input is still being sent
            self.close()
        return False

    def _send(self, *messages: tuple[bytes, bytes]) -> None:
        """Send frames to the client. A command that writes without a client is closed: the next
        client would not understand its output."""
        frames = self._frames
        try:
            if frames is None:
                return self.close()
            for kind, data in messages:
                frames.send(kind, data)
        except OSError:
            self.close()


def _read_input(frames: FrameConnection) -> bytes:
    """Return the whole standard input of a command."""
    data = bytearray()
    while (frame := frames.next())[0] == INPUT:
        data += frame[1]
    return bytes(data)


def _close_with(frames: FrameConnection, channel: paramiko.Channel) -> None:
    """Close the command's channel, and so end it, when the client leaves."""
    frames.next()
    channel.close()


def _result_frames(result: CompletedCommand) -> list[tuple[bytes, bytes]]:
    output = [(OUTPUT, result.stdout)] if result.stdout else []
    return [*output, (ERRORS, result.stderr), (EXIT, str(result.exit).encode())]
