"""A command of the daemon that serves one client after another."""

from __future__ import annotations

import logging
import shlex
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, HostError, Unreachable
from tfdeploy.transport.daemon import client_log
from tfdeploy.transport.daemon.client import encode_error
from tfdeploy.transport.daemon.ipc import ERRORS, EXIT, FAILED, INPUT, OUTPUT, PARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.daemon.host_pool import Connections, HostCommand
    from tfdeploy.transport.daemon.ipc import FrameConnection

_log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 1.0


class ReusableCommand:
    """A command that serves one client after another; its output goes to the current one."""

    def __init__(self, argv: Sequence[str], connections: Connections) -> None:
        self.text = shlex.join(argv)
        self._argv = argv
        self._connections = connections
        self._stream = self._start()
        self._frames: FrameConnection | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()
        self._unanswered: list[bytes] | None = None  # input that may be repeated
        self._was_checked = True  # whether the host answers, since the client's input was sent
        self._is_closed = False
        self._input_lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        return self._stream.is_idle

    def serve(self, frames: FrameConnection, repeatable: bool) -> bool:
        """Serve a client until it leaves; return whether it parked the command.

        If the connection turns out to be lost before the first output, `repeatable` input is sent
        once more on another connection.
        """
        self._unanswered = [] if repeatable else None
        self._was_checked = not repeatable
        with self._lock:
            self._frames = frames
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
        while (frame := frames.next())[0] == INPUT:
            with suppress(HostError):  # the reader sends the client the error
                self._send_input(frame[1])
        with self._lock:
            self._frames = None
        return frame[0] == PARK and self.is_idle

    def is_alive(self) -> bool:
        """Return whether the host still answers on the command's connection."""
        return self._connections.is_alive(self._stream)

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()  # a thread that is sending to it gets an error
        with self._input_lock:
            self._stream.close()  # it may be another one now

    def _start(self) -> HostCommand:
        command: HostCommand = self._connections.start(self._argv)
        return command

    def _send_input(self, data: bytes) -> None:
        with self._input_lock:
            if self._unanswered is not None:
                self._unanswered.append(data)
            self._stream.send(data)

    def _read(self) -> None:
        """Send the output to the current client until there is none, or until the end."""
        try:
            while not self._stop_without_client():
                chunk = self._next_output()
                if chunk == b"":
                    return self._send(*result_frames(self._stream.result()))
                if chunk:
                    self._send((OUTPUT, chunk))
        except HostError as error:
            self._send((FAILED, encode_error(error)))

    def _next_output(self) -> bytes | None:
        """Return the next output, b"" at its end, None if there was none for a while."""
        try:
            chunk = self._stream.read(CHECK_INTERVAL_S)
            self._unanswered = None
            return chunk
        except CommandTimedOut:
            if self._unanswered and not self._was_checked:
                self._repeat_if_silent()
        except Unreachable:
            if not self._unanswered:
                raise
            self._repeat()
        return None

    def _repeat_if_silent(self) -> None:
        """Repeat the input if the host does not answer. It is asked once, as before a command that
        is not repeatable: after that, only a lost connection counts, as TCP reports it."""
        self._was_checked = True
        if not self.is_alive():
            with suppress(HostError):  # the network only pauses: the old connection may continue
                self._repeat()

    def _repeat(self) -> None:
        """Start the command on another connection, and send the input to it. Raises HostError; then
        the command stays as it was."""
        with client_log.sent_to(self._frames):
            host = self._connections.host
            _log.info("%s: the connection was lost; the request is sent over another one", host)
            another = self._start()
        self._stream.close()  # a thread that is sending to it gets an error
        with self._input_lock:
            self._stream = another
            if self._is_closed or self._frames is None:  # the client has left meanwhile
                return another.close()
            unanswered, self._unanswered = self._unanswered or [], None
            for data in unanswered:
                another.send(data)

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
