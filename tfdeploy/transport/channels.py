"""Commands on one host: each has a channel, on as many connections as sshd wants for them."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import paramiko

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import Completed
from tfdeploy.transport.translate import CONNECT_FAILED, FOREIGN, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.transport.link import Link

SESSION_PAUSES_S = (0.0, 0.2, 0.4, 0.8)
CHUNK = 1 << 16
MAX_OUTPUT = 256 << 20  # no answer comes near it, and a hostile host must not fill our memory
MAX_ERRORS = 16 << 20  # the last of them
NO_STATUS = -1  # Paramiko's, where a signal or the end of the connection ended a command


class Channels:
    """One connection, opened at the first use, and more where sshd wants it so."""

    def __init__(self, host: str, connect: Callable[[], Link]) -> None:
        self.host = host
        self._connect = connect
        self._links: list[Link] = []
        self._opening = threading.Lock()

    def open(self, argv: Sequence[str]) -> paramiko.Channel:
        """Begin a command. Raises HostError where that can't be done."""
        try:
            return _begun(self._session(), shlex.join(argv))
        except FOREIGN as error:
            raise translated(self.host, error) from None

    def answer(self) -> bool:
        """Whether the host is still there on every connection that was made to it."""
        return all(link.answers() for link in self._links)

    def __len__(self) -> int:
        """How many connections there are, as far as this machine knows."""
        return sum(link.is_connected for link in self._links)

    def close(self) -> None:
        while self._links:
            self._links.pop().close()

    def _session(self) -> paramiko.Channel:
        """A new channel. Where sshd allows no more on a connection (MaxSessions), one that was just
        closed makes room in a moment; else this one gets a connection of its own."""
        for pause_s in SESSION_PAUSES_S:
            time.sleep(pause_s)
            with self._taken() as links:
                for link in links:
                    try:
                        return link.session()
                    except paramiko.ChannelException as error:
                        if error.code != CONNECT_FAILED:
                            raise
        own = self._connect()
        with self._opening:
            self._links.append(own)
        return own.session()

    @contextmanager
    def _taken(self) -> Iterator[list[Link]]:
        """The connections that answer, at least one; nobody else finds them idle meanwhile."""
        links = self._linked()
        try:
            yield links
        finally:
            for link in links:
                link.let_go()

    def _linked(self) -> list[Link]:
        """As `_taken`, for the caller to let go."""
        with self._opening:
            answering = [link for link in self._links if link.answers()]
            for link in [link for link in self._links if link not in answering]:
                # A network may only be slow: what is under way is not ended for that.
                if link.is_idle or not link.is_connected:
                    self._links.remove(link)
                    link.close()
            if not answering:
                answering = [self._connect()]
                self._links += answering
            for link in answering:
                link.take()
            return answering


def _begun(channel: paramiko.Channel, command: str) -> paramiko.Channel:
    try:
        channel.exec_command(command)
    except BaseException:
        channel.close()
        raise
    return channel


def completed(
    host: str, name: str, channel: paramiko.Channel, stdin: bytes, timeout_s: float
) -> Completed:
    """Give a command its input, and wait for its end. Raises CommandTimedOut, Unreachable."""
    deadline = time.monotonic() + timeout_s
    try:
        channel.settimeout(timeout_s)
        threading.Thread(target=_write, args=(channel, stdin), daemon=True).start()
        stdout, stderr = _drain(host, channel, deadline)
        if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        # Paramiko ends the channels of a lost connection before it says that it is lost.
        if channel.exit_status == NO_STATUS and not channel.eof_received:
            raise Unreachable(host, f"the connection was lost during {name}")
        return Completed(channel.exit_status, stdout, stderr)
    except TimeoutError:
        raise CommandTimedOut(host, f"{name} gave no answer within {timeout_s:g} s") from None
    except FOREIGN as error:
        raise translated(host, error) from None
    finally:
        channel.close()


def _write(channel: paramiko.Channel, data: bytes) -> None:
    """Beside the reading, so that neither side waits for the other with full hands."""
    with suppress(Exception):  # the reader meets the same failure, and names it
        channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes would be quadratic
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
            raise CommandFailed(host, f"its answer has no end: {len(output)} bytes came so far")
    reader.join(timeout=1)
    return bytes(output), bytes(errors)


def _keep_last(channel: paramiko.Channel, errors: bytearray) -> None:
    """What went wrong is said at the end."""
    with suppress(OSError):
        while chunk := channel.recv_stderr(CHUNK):
            errors += chunk
            del errors[:-MAX_ERRORS]
