"""A host by SSH: Fabric connects, with OpenSSH's own settings and strict host keys; rsync moves."""

from __future__ import annotations

import logging
import random
import shlex
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import fabric
import paramiko

from tfdeploy.errors import CommandFailed, CommandTimedOut, Unreachable
from tfdeploy.transport import Completed, OnProgress, openssh, rsync
from tfdeploy.transport.host_keys import AcceptNew, RefuseUnknown
from tfdeploy.transport.translate import FOREIGN, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.transport.openssh import SshConfig

BANNER_TIMEOUT_S = 20
ATTEMPTS = 4
CHUNK = 1 << 16
MAX_OUTPUT = 256 << 20  # no answer comes near it, and a hostile host must not fill our memory
NO_STATUS = -1  # Paramiko's, where a signal or the end of the connection ended a command
USER_TIMEOUT_MS = 20_000  # how long sent bytes may stay unacknowledged: a dead network is noticed
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class SshTransport:
    """One connection to one host, opened at the first use."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        self.host = host.name
        self._inventory = inventory
        self._accept_new = accept_new
        self._ssh = openssh.command(host, inventory, accept_new=accept_new)
        self._host = host
        self._connection: fabric.Connection | None = None
        self._gateways: list[fabric.Connection] = []
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
        with suppress(Exception):
            if self._connection:
                self._connection.close()
        self._close_gateways()

    def _close_gateways(self) -> None:
        """Fabric leaves them open."""
        while self._gateways:
            with suppress(Exception):
                self._gateways.pop(0).close()

    def _exec(self, argv: Sequence[str]) -> paramiko.Channel:
        try:
            channel: paramiko.Channel = self._open().open_session(timeout=BANNER_TIMEOUT_S)
            channel.exec_command(shlex.join(argv))
            return channel
        except FOREIGN as error:
            raise translated(self.host, error) from None

    def _open(self) -> Any:
        """The connected Paramiko transport. A handshake that sshd dropped is tried again."""
        with self._opening:
            for attempt in range(1, ATTEMPTS + 1):
                if self._connection and self._connection.is_connected:
                    break
                try:
                    self._connection = self._connect()
                except FOREIGN as error:
                    if attempt == ATTEMPTS or not _was_dropped(error):
                        raise
                    time.sleep(random.uniform(0.2, 0.6) * 2**attempt)
            assert self._connection
            return self._connection.transport

    def _connect(self) -> fabric.Connection:
        self._close_gateways()  # those of a connection that was lost
        config = openssh.resolve(self._host, self._inventory)
        connection = _connection(config, self._gateway(config), self._accept_new)
        _open(connection)
        _tune(connection.transport.sock)
        connection.transport.set_keepalive(15)
        return connection

    def _gateway(self, config: SshConfig) -> fabric.Connection | str | None:
        """The chain of jump hosts, each reached through the one before it."""
        if not config.proxy_jump:
            return config.proxy_command
        gateway: fabric.Connection | None = None
        for jump in config.proxy_jump.split(","):
            settings = openssh.resolve_jump(jump.removeprefix("ssh://"), self._inventory)
            gateway = _connection(settings, gateway, self._accept_new)
            self._gateways.insert(0, gateway)
            try:
                _open(gateway)
            except FOREIGN as error:
                if _was_dropped(error):
                    raise
                raise translated(self.host, error, via=jump) from None
        return gateway


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


def _connection(
    config: SshConfig, gateway: fabric.Connection | str | None, accept_new: bool
) -> fabric.Connection:
    connection = fabric.Connection(
        config.hostname,
        user=config.user,
        port=config.port,
        gateway=gateway,
        connect_timeout=openssh.CONNECT_TIMEOUT_S,
        config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
        connect_kwargs={
            "key_filename": [str(key) for key in config.identity_files if key.exists()],
            "look_for_keys": False,
            "allow_agent": not config.identities_only,
            "banner_timeout": BANNER_TIMEOUT_S,
            "auth_timeout": BANNER_TIMEOUT_S,
        },
    )
    for file in config.known_hosts:
        if file.is_file():
            connection.client.load_system_host_keys(str(file))
            _take_alias(connection, config, file)
    remembers = config.remembers_in if accept_new else None
    policy = AcceptNew(remembers) if remembers else RefuseUnknown()
    connection.client.set_missing_host_key_policy(policy)
    return connection


def _take_alias(connection: fabric.Connection, config: SshConfig, file: Path) -> None:
    """HostKeyAlias: the keys that stand under the alias count for this host."""
    if not config.host_key_alias:
        return
    port = "" if config.port == openssh.PORT else f":{config.port}"
    dialled = f"[{config.hostname}]{port}" if port else config.hostname
    for kind, key in (paramiko.HostKeys(str(file)).lookup(config.host_key_alias) or {}).items():
        connection.client.get_host_keys().add(dialled, kind, key)


def _open(connection: fabric.Connection) -> None:
    try:
        connection.open()
    except BaseException as error:
        connection.client.close()  # Fabric closes only what is connected
        if isinstance(error, paramiko.BadHostKeyException) and connection.port != openssh.PORT:
            error.hostname = f"[{error.hostname}]:{connection.port}"  # it knows the name alone
        raise


def _was_dropped(error: BaseException) -> bool:
    """sshd closes connections beyond MaxStartups before its banner; nothing else looks like it."""
    if isinstance(error, paramiko.AuthenticationException | paramiko.BadHostKeyException):
        return False
    return isinstance(error, EOFError | ConnectionResetError) or "banner" in str(error)


def _tune(sock: Any) -> None:
    """Small requests at once (Paramiko leaves Nagle on), and a dead network noticed in time."""
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


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
