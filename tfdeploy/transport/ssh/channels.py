"""Commands on one host: a channel for each, on as many connections as sshd requires."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import paramiko

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.ssh.errors import CONNECT_FAILED, SSH_ERRORS, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.transport.ssh.connection import SshConnection

SESSION_PAUSES_S = (0.0, 0.2, 0.4, 0.8)
CHUNK = 1 << 16
MAX_OUTPUT = 256 << 20  # far above any answer: a host must not fill the controller's memory
MAX_ERRORS = 16 << 20  # the last bytes of standard error
NO_STATUS = -1  # Paramiko's exit status after a signal, or after the connection was lost


class ChannelPool:
    """The connections to one host: the first is opened on first use, more if sshd requires it."""

    def __init__(self, host: str, connect: Callable[[], SshConnection]) -> None:
        self.host = host
        self._connect = connect
        self._connections: list[SshConnection] = []
        self._lock = threading.Lock()

    def open(self, argv: Sequence[str]) -> paramiko.Channel:
        """Start a command. Raises HostError."""
        try:
            return _exec(self._open_session(), shlex.join(argv))
        except SSH_ERRORS as error:
            raise translate(self.host, error) from None

    def is_alive(self, channel: paramiko.Channel) -> bool:
        """Return whether the host still answers on the connection of a channel."""
        found = [connection for connection in self._connections if connection.has(channel)]
        return any(connection.is_alive() for connection in found)

    def __len__(self) -> int:
        """Return the number of connections that are open, as far as the controller knows."""
        return sum(connection.is_connected for connection in self._connections)

    def close(self) -> None:
        while self._connections:
            self._connections.pop().close()

    def _open_session(self) -> paramiko.Channel:
        """Open a channel. If sshd allows no more on a connection (MaxSessions), wait briefly
        until one is closed; then open another connection."""
        for pause_s in SESSION_PAUSES_S:
            time.sleep(pause_s)
            with self._reserve_connections() as connections:
                for connection in connections:
                    try:
                        return connection.open_session()
                    except paramiko.ChannelException as error:
                        if error.code != CONNECT_FAILED:
                            raise
        another = self._connect()
        with self._lock:
            self._connections.append(another)
        return another.open_session()

    @contextmanager
    def _reserve_connections(self) -> Iterator[list[SshConnection]]:
        """Yield the connections that answer, at least one; until the end of the block they are not
        idle, so that no thread closes them."""
        connections = self._acquire_connections()
        try:
            yield connections
        finally:
            for connection in connections:
                connection.release()

    def _acquire_connections(self) -> list[SshConnection]:
        """Return the connections that answer; the caller must release them."""
        with self._lock:
            alive = [connection for connection in self._connections if connection.is_alive()]
            dead = [connection for connection in self._connections if connection not in alive]
            for connection in dead:
                # The network may only be slow: do not end commands that still run.
                if connection.is_idle or not connection.is_connected:
                    self._connections.remove(connection)
                    connection.close()
            if not alive:
                alive = [self._connect()]
                self._connections += alive
            for connection in alive:
                connection.acquire()
            return alive


def _exec(channel: paramiko.Channel, command: str) -> paramiko.Channel:
    try:
        channel.exec_command(command)
    except BaseException:
        channel.close()
        raise
    return channel


def run_to_end(
    host: str, name: str, channel: paramiko.Channel, stdin: bytes, timeout_s: float
) -> CompletedCommand:
    """Send a command its input and wait for its end. Raises CommandTimedOut, Unreachable."""
    deadline = time.monotonic() + timeout_s
    try:
        channel.settimeout(timeout_s)
        threading.Thread(target=_write, args=(channel, stdin), daemon=True).start()
        stdout, stderr = _drain(host, channel, deadline)
        if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        # Paramiko closes the channels of a lost connection before it reports the loss.
        if channel.exit_status == NO_STATUS and not channel.eof_received:
            raise Unreachable(host, f"the connection was lost during {name}")
        return CompletedCommand(channel.exit_status, stdout, stderr)
    except TimeoutError:
        raise CommandTimedOut(host, f"{name} gave no answer within {timeout_s:g} s") from None
    except SSH_ERRORS as error:
        raise translate(host, error) from None
    finally:
        channel.close()


def _write(channel: paramiko.Channel, data: bytes) -> None:
    """Write in a thread beside the reader, so that the two sides never block each other."""
    with suppress(Exception):  # the reader gets the same error, and reports it
        channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes: quadratic time
        channel.shutdown_write()


def _drain(host: str, channel: paramiko.Channel, deadline: float) -> tuple[bytes, bytes]:
    errors = bytearray()
    reader = threading.Thread(target=_keep_last, args=(channel, errors), daemon=True)
    reader.start()
    output = bytearray()
    while chunk := channel.recv(CHUNK):
        output += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(output) > MAX_OUTPUT:
            raise CommandFailed(host, f"its output is too long: {len(output)} bytes so far")
    reader.join(timeout=1)
    return bytes(output), bytes(errors)


def _keep_last(channel: paramiko.Channel, errors: bytearray) -> None:
    """Collect the end of standard error, which has the reason of a failure."""
    with suppress(OSError):
        while chunk := channel.recv_stderr(CHUNK):
            errors += chunk
            del errors[:-MAX_ERRORS]
