"""A host by SSH: Fabric connects, with OpenSSH's own settings and strict host keys; rsync moves."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import paramiko

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import Completed, OnProgress, openssh, rsync
from tfdeploy.transport.link import Link, connect
from tfdeploy.transport.translate import FOREIGN, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tfdeploy.inventory import Host, Inventory

TOO_MANY = 2  # what sshd answers beyond MaxSessions: RFC 4254's SSH_OPEN_CONNECT_FAILED
SESSION_PAUSES_S = (0.0, 0.2, 0.4, 0.8)
CHUNK = 1 << 16
MAX_OUTPUT = 256 << 20  # no answer comes near it, and a hostile host must not fill our memory
NO_STATUS = -1  # Paramiko's, where a signal or the end of the connection ended a command
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class SshTransport:
    """One host: one connection, opened at the first use, and more where sshd wants it so."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        self.host = host.name
        self._inventory = inventory
        self._accept_new = accept_new
        self._ssh = openssh.command(host, inventory, accept_new=accept_new)
        self._host = host
        self._links: list[Link] = []
        self._opening = threading.Lock()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        channel = self._exec(argv)
        deadline = time.monotonic() + timeout_s
        try:
            channel.settimeout(timeout_s)
            writer = threading.Thread(target=_write, args=(channel, stdin), daemon=True)
            writer.start()
            stdout, stderr = _drain(self.host, channel, deadline)
            if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            # Paramiko ends the channels of a lost connection before it says that it is lost.
            if channel.exit_status == NO_STATUS and not channel.eof_received:
                raise Unreachable(self.host, f"the connection was lost during {argv[0]}")
            return Completed(channel.exit_status, stdout, stderr)
        except TimeoutError:
            raise CommandTimedOut(
                self.host, f"{argv[0]} gave no answer within {timeout_s:g} s"
            ) from None
        except FOREIGN as error:
            raise translated(self.host, error) from None
        finally:
            channel.close()

    def stream(self, argv: Sequence[str], *, stdin: bytes = b"") -> SshStream:
        channel = self._exec(argv)
        try:
            channel.sendall(stdin)
        except FOREIGN as error:
            raise translated(self.host, error) from None
        return SshStream(self.host, channel)

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = lambda share: None,
    ) -> None:
        options = rsync.push_options(base, checksum)
        remote = f"{self.host}:{rsync.folder(dest)}"
        rsync.transfer(
            self.host, self._ssh, rsync.folder(source), remote, files, options, on_progress
        )

    def pull(self, source: str, dest: Path, files: Sequence[str]) -> None:
        dest.mkdir(parents=True, exist_ok=True)
        remote = f"{self.host}:{rsync.folder(source)}"
        rsync.transfer(
            self.host,
            self._ssh,
            remote,
            rsync.folder(dest),
            files,
            rsync.REGULAR_ONLY,
            lambda share: None,
        )

    def close(self) -> None:
        while self._links:
            self._links.pop().close()

    def _exec(self, argv: Sequence[str]) -> paramiko.Channel:
        try:
            channel = self._session()
            channel.exec_command(shlex.join(argv))
            return channel
        except FOREIGN as error:
            raise translated(self.host, error) from None

    def _session(self) -> paramiko.Channel:
        """A new channel. Where sshd allows no more on a connection (MaxSessions), one that was just
        closed makes room in a moment; else this one gets a connection of its own."""
        for pause_s in SESSION_PAUSES_S:
            time.sleep(pause_s)
            for link in self._linked():
                try:
                    return link.session()
                except paramiko.ChannelException as error:
                    if error.code != TOO_MANY:
                        raise
        own = connect(self._host, self._inventory, self._accept_new)
        with self._opening:
            self._links.append(own)
        return own.session()

    def _linked(self) -> list[Link]:
        """The connections there are, at least one."""
        with self._opening:
            for link in [link for link in self._links if not link.is_connected]:
                self._links.remove(link)
                link.close()
            if not self._links:
                self._links.append(connect(self._host, self._inventory, self._accept_new))
            return list(self._links)


class SshStream:
    """A command on the host whose output is read as it comes."""

    def __init__(self, host: str, channel: paramiko.Channel) -> None:
        self._host = host
        self._channel = channel
        self._closed = False
        # Both outputs share one SSH window: errors that nobody reads would stop the output.
        threading.Thread(target=_discard_errors, args=(channel,), daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while chunk := self._channel.recv(CHUNK):
                yield chunk
        except FOREIGN as error:
            raise translated(self._host, error) from None
        if not self._closed and not self._channel.eof_received:
            raise Unreachable(self._host, "the connection was lost")

    def close(self) -> None:
        self._closed = True
        with suppress(Exception):
            self._channel.close()


def _write(channel: paramiko.Channel, data: bytes) -> None:
    """Beside the reading, so that neither side waits for the other with full hands."""
    with suppress(Exception):  # the reader meets the same failure, and names it
        channel.sendall(memoryview(data))  # type: ignore[arg-type]  # bytes would be quadratic
        channel.shutdown_write()


def _drain(host: str, channel: paramiko.Channel, deadline: float) -> tuple[bytes, bytes]:
    errors: list[bytes] = []
    reader = threading.Thread(
        target=lambda: errors.extend(iter(lambda: _received(channel.recv_stderr), b"")), daemon=True
    )
    reader.start()
    output = bytearray()
    while chunk := channel.recv(CHUNK):
        output += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(output) > MAX_OUTPUT:
            raise CommandFailed(host, f"its answer has no end: {len(output)} bytes came so far")
    reader.join(timeout=1)
    return bytes(output), b"".join(errors)


def _discard_errors(channel: paramiko.Channel) -> None:
    while _received(channel.recv_stderr):
        pass


def _received(receive: Any) -> bytes:
    try:
        return bytes(receive(CHUNK))
    except OSError:
        return b""
