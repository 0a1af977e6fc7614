"""A command of the daemon that serves one client after another."""

from __future__ import annotations

import shlex
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, HostError
from tfdeploy.transport.daemon.client import encode_error
from tfdeploy.transport.daemon.ipc import ERRORS, EXIT, FAILED, INPUT, OUTPUT, PARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.daemon.host_pool import Connections, HostCommand
    from tfdeploy.transport.daemon.ipc import FrameConnection

CHECK_INTERVAL_S = 1.0


class ReusableCommand:
    """A command that serves one client after another; its output goes to the current one."""

    def __init__(self, argv: Sequence[str], connections: Connections) -> None:
        self.text = shlex.join(argv)
        self._connections = connections
        self._stream: HostCommand = connections.start(argv)
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

    def is_alive(self) -> bool:
        """Return whether the host still answers on the command's connection."""
        return self._connections.is_alive(self._stream)

    def close(self) -> None:
        self._stream.close()  # a thread that is sending to it gets an error

    def _read(self) -> None:
        """Send the output to the current client until there is none, or until the end."""
        try:
            while not self._stop_without_client():
                with suppress(CommandTimedOut):
                    chunk = self._stream.read(CHECK_INTERVAL_S)
                    if not chunk:
                        return self._send(*result_frames(self._stream.result()))
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


def result_frames(result: CompletedCommand) -> list[tuple[bytes, bytes]]:
    output = [(OUTPUT, result.stdout)] if result.stdout else []
    return [*output, (ERRORS, result.stderr), (EXIT, str(result.exit).encode())]
