"""Commands on one host: a channel for each, on as many connections as sshd requires."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import paramiko

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.process_stream import (
    CHUNK,
    EXIT_WAIT_S,
    MAX_ERRORS,
    MAX_OUTPUT,
    timed_out,
)
from tfdeploy.transport.ssh.client_transport import HostLies
from tfdeploy.transport.ssh.errors import CONNECT_FAILED, SSH_ERRORS, NoAnswer, translate
from tfdeploy.transport.words import endless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.transport.ssh.connection import SshConnection

SESSION_PAUSES_S = (0.0, 0.2, 0.4, 0.8)
CHECK_INTERVAL_S, EXCHANGE_POLL_S = 1.0, 0.1
ANSWER_S = 20.0  # of sshd to the request for a command
STUCK_S = 60.0  # how long a command may read nothing of what it is sent
MAX_ERROR_CHUNKS = 64  # that are read at a time, as many as a window has
NO_STATUS = -1  # Paramiko's exit status after a signal, or after the connection was lost
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False
_log = logging.getLogger(__name__)


class ChannelPool:
    """The connections to one host: the first is opened on first use, more if sshd requires it."""

    def __init__(self, host: str, connect: Callable[[], SshConnection]) -> None:
        self.host = host
        self._connect = connect
        self._connections: list[SshConnection] = []
        self._lock = threading.Lock()

    def start(self, argv: Sequence[str]) -> SshStream:
        """Start a command. Raises HostError."""
        try:
            channel = _exec(self._open_session(), shlex.join(argv))
        except SSH_ERRORS as error:
            raise translate(self.host, error) from None
        return SshStream(self.host, argv[0], channel)

    def is_alive(self, stream: SshStream) -> bool:
        """Return whether the host still answers on the connection of a command."""
        found = [each for each in self._connections if each.has(stream.channel)]
        return any(connection.is_alive() for connection in found)

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
        _log.info("%s: sshd allows no more sessions on a connection", self.host)
        another = self._connect()
        try:
            channel = another.open_session()  # before other threads see it, and take its sessions
        except BaseException:
            another.close()
            raise
        with self._lock:
            self._connections.append(another)
        return channel

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
                _log.info("%s: an open connection does not answer", self.host)
                # The network may only be slow: do not end commands that still run.
                if connection.is_idle or not connection.is_connected:
                    self._connections.remove(connection)
                    connection.close()
            if alive:
                _log.debug("%s: an open connection is used again", self.host)
            else:
                alive = [self._connect()]
                self._connections += alive
            for connection in alive:
                connection.acquire()
            return alive


def _exec(channel: paramiko.Channel, command: str) -> paramiko.Channel:
    try:
        with _limited(channel, ANSWER_S):
            channel.exec_command(command)
    except BaseException:
        channel.close()
        raise
    return channel


@contextmanager
def _limited(channel: paramiko.Channel, seconds: float) -> Iterator[None]:
    """Close a channel if the block takes longer: Paramiko would wait forever. Raises NoAnswer."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        channel.close()

    watch = threading.Timer(seconds, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    except SSH_ERRORS:
        if is_over.is_set():
            raise NoAnswer(seconds) from None
        raise
    finally:
        watch.cancel()


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
        # More than the window allows waits until the host has read.
        must_wait = len(data) > self.channel.out_window_size
        try:
            with _limited(self.channel, STUCK_S) if must_wait else nullcontext():
                self.channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes: quadratic time
        except NoAnswer:
            message = f"{self._name} read nothing for {STUCK_S:g} s"
            raise CommandTimedOut(self._host, message) from None
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
            raise _lost(self._host, self.channel)
        return bytes(chunk)

    def result(self) -> CompletedCommand:
        self.channel.status_event.wait(EXIT_WAIT_S)
        self._read_errors()
        return CompletedCommand(self.channel.exit_status, b"", self._errors)

    def finish(self, stdin: bytes, timeout_s: float) -> CompletedCommand:
        """Send the command its input and wait for its end. Raises CommandTimedOut, Unreachable."""
        channel, deadline = self.channel, time.monotonic() + timeout_s
        errors = bytearray()
        try:
            channel.settimeout(timeout_s)
            threading.Thread(target=_write, args=(channel, stdin), daemon=True).start()
            stdout = _drain(self._host, channel, errors, deadline)
            if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            # Paramiko closes the channels of a lost connection before it reports the loss.
            if channel.exit_status == NO_STATUS and not channel.eof_received:
                raise _lost(self._host, channel, f" during {self._name}")
            return CompletedCommand(channel.exit_status, stdout, bytes(errors))
        except TimeoutError:
            raise timed_out(self._host, self._name, timeout_s, errors) from None
        except SSH_ERRORS as error:
            raise translate(self._host, error) from None
        finally:
            channel.close()

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
        for _ in range(MAX_ERROR_CHUNKS):
            if not self.channel.recv_stderr_ready():
                break
            self._errors = (self._errors + self.channel.recv_stderr(CHUNK))[-CHUNK:]


def _lost(host: str, channel: paramiko.Channel, when: str = "") -> Unreachable:
    """Return the error of a command whose connection has ended."""
    error = channel.get_transport().saved_exception
    reason = f": {error}" if isinstance(error, HostLies) else ""
    return Unreachable(host, f"the connection was lost{when}{reason}")


def _write(channel: paramiko.Channel, data: bytes) -> None:
    """Write in a thread beside the reader, so that the two sides never block each other."""
    with suppress(Exception):  # the reader gets the same error, and reports it
        channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes: quadratic time
        _end_input(channel)


def _end_input(channel: paramiko.Channel) -> None:
    """Do what `shutdown_write` does, but never after the channel's CLOSE.

    Paramiko sends without the channel's lock, so the CLOSE of another thread may pass its EOF. Then
    sshd ends the connection: "ieof packet referred to nonexistent channel". Here nothing is sent
    between the decision and the EOF. While keys are exchanged nothing may be sent.
    """
    transport = channel.get_transport()
    while transport.is_active():
        transport.clear_to_send.wait(EXCHANGE_POLL_S)
        with transport.clear_to_send_lock:
            if not transport.clear_to_send.is_set():
                continue
            with channel.lock:
                eof = None if channel.closed else channel._send_eof()  # type: ignore[attr-defined]
            if eof is not None:
                transport._send_message(eof)  # type: ignore[attr-defined]
            return


def _drain(host: str, channel: paramiko.Channel, errors: bytearray, deadline: float) -> bytes:
    """Return the output of a command; add the end of its standard error to `errors`."""
    reader = threading.Thread(target=_keep_last, args=(channel, errors), daemon=True)
    reader.start()
    output = bytearray()
    while chunk := channel.recv(CHUNK):
        output += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(output) > MAX_OUTPUT:
            raise CommandFailed(host, endless(output))
    reader.join(timeout=1)
    return bytes(output)


def _keep_last(channel: paramiko.Channel, errors: bytearray) -> None:
    """Collect the end of standard error, which has the reason of a failure."""
    with suppress(OSError):
        while chunk := channel.recv_stderr(CHUNK):
            errors += chunk
            del errors[:-MAX_ERRORS]


def _wait_s(deadline: float) -> float:
    """Return how long to wait until the errors are read again."""
    return max(0.0, min(CHECK_INTERVAL_S, deadline - time.monotonic()))
