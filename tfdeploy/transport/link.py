"""One SSH connection and the jump hosts on its way, made by Fabric as ssh_config says."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import fabric
import paramiko

from tfdeploy.transport import openssh
from tfdeploy.transport.host_keys import AcceptNew, RefuseUnknown
from tfdeploy.transport.translate import CONNECT_FAILED, FOREIGN, NO_ANSWER, NotReached, translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.transport.openssh import SshConfig
    from tfdeploy.transport.way import Way

BANNER_TIMEOUT_S = 20
ATTEMPTS = 4
USER_TIMEOUT_MS = 20_000  # how long sent bytes may stay unacknowledged: a dead network is noticed
KEEPALIVE_S = 15
SILENCE_S = 2.0  # an answer is believed for so long
ANSWER_S = 2.0
# Paramiko looks 10 times a second whether its connection was closed here, which `close` tells it.
PATIENCE_S = 5.0
# One that goes on while a laptop sleeps, where there is such a clock.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Slow(paramiko.SSHException):
    """A handshake that was begun on both sides, and not ended in time."""


class Link:
    """A connection, and the gateways that it goes through, which Fabric leaves open."""

    def __init__(self, connection: fabric.Connection, gateways: list[fabric.Connection]) -> None:
        self._connection = connection
        self._gateways = gateways
        self._channels: list[paramiko.Channel] = []
        self._users = 0  # who may be about to open one
        self._using = threading.Lock()
        self._asking = threading.Lock()
        self._asked = time.clock_gettime(CLOCK)
        self._answered = True

    @property
    def is_connected(self) -> bool:
        """As far as this machine knows."""
        return bool(self._connection.is_connected)

    @property
    def is_idle(self) -> bool:
        with self._using:
            self._channels = [channel for channel in self._channels if not channel.closed]
            return not self._channels and not self._users

    def take(self) -> None:
        """It is not idle until it was let go as often."""
        with self._using:
            self._users += 1

    def let_go(self) -> None:
        with self._using:
            self._users -= 1

    def answers(self) -> bool:
        """Whether the host is there: asked, where that was not known a moment ago. A network that
        was changed, or a laptop that slept, breaks a connection without a word."""
        with self._asking:
            now = time.clock_gettime(CLOCK)
            if self.is_connected and now - self._asked > SILENCE_S:
                self._answered = _answers(self._connection.transport)
                self._asked = time.clock_gettime(CLOCK)
            return self.is_connected and self._answered

    def session(self) -> paramiko.Channel:
        """A new channel. Raises paramiko.ChannelException where sshd allows no more of them."""
        transport = self._connection.transport
        channel: paramiko.Channel = transport.open_session(timeout=BANNER_TIMEOUT_S)
        with self._using:
            self._channels.append(channel)
        return channel

    def close(self) -> None:
        with suppress(Exception):  # wakes who waits for it
            self._connection.transport.sock.shutdown(socket.SHUT_RDWR)
        _close([self._connection, *self._gateways])


def connect(way: Way, accept_new: bool) -> Link:
    """A new connection. A handshake that sshd dropped is tried again.

    Raises what Fabric and Paramiko raise (see translate.FOREIGN), and HostError for a jump host.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return _connected(way, accept_new)
        except FOREIGN as error:
            if not _was_dropped(error):
                raise
            time.sleep(random.uniform(0.2, 0.6) * 2**attempt)
    return _connected(way, accept_new)


def _connected(way: Way, accept_new: bool) -> Link:
    gateways: list[fabric.Connection] = []
    try:
        gateway: fabric.Connection | str | None = way.config.proxy_command
        for jump, settings in way.jumps:
            gateway = _connection(settings, gateways[0] if gateways else None, accept_new)
            gateways.insert(0, gateway)
            _open_jump(way.name, jump, gateway)
        connection = _connection(way.config, gateway, accept_new)
        _open(connection)
    except BaseException:
        _close(gateways)
        raise
    for each in (*gateways, connection):
        _tune(each.transport.sock)
        each.transport.set_keepalive(KEEPALIVE_S)
    return Link(connection, gateways)


def _open_jump(name: str, jump: str, gateway: fabric.Connection) -> None:
    try:
        _open(gateway)
    except FOREIGN as error:
        if _was_dropped(error):
            raise
        raise translated(name, error, via=jump) from None


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
            # How long a jump host may take to reach what is behind it.
            "channel_timeout": openssh.CONNECT_TIMEOUT_S,
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
        begun = connection.client.get_transport()
        connection.client.close()  # Fabric closes only what is connected
        if isinstance(error, paramiko.ChannelException) and error.code == CONNECT_FAILED:
            raise NotReached from None  # no session is asked for yet: it is the jump host's answer
        if NO_ANSWER in str(error) and begun and begun.remote_version:
            raise Slow(
                f"it answered, and was not done within {openssh.CONNECT_TIMEOUT_S} s"
            ) from None
        if isinstance(error, paramiko.BadHostKeyException) and connection.port != openssh.PORT:
            error.hostname = f"[{error.hostname}]:{connection.port}"  # it knows the name alone
        raise


def _close(connections: Sequence[fabric.Connection]) -> None:
    for connection in connections:
        with suppress(Exception):
            connection.close()


def _was_dropped(error: BaseException) -> bool:
    """sshd closes connections beyond MaxStartups before its banner; nothing else looks like it.
    One that has begun to answer may only have too many others to answer."""
    if isinstance(error, paramiko.AuthenticationException | paramiko.BadHostKeyException):
        return False
    return isinstance(error, EOFError | ConnectionResetError | Slow) or "banner" in str(error)


def _tune(sock: Any) -> None:
    """Small requests at once (Paramiko leaves Nagle on), and a dead network noticed in time."""
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        sock.settimeout(PATIENCE_S)


def _answers(transport: paramiko.Transport) -> bool:
    """Ask something that every sshd refuses, and says so. Paramiko itself would wait for ever."""
    ask = threading.Thread(
        target=transport.global_request, args=("keepalive@openssh.com",), daemon=True
    )
    ask.start()
    ask.join(ANSWER_S)
    return not ask.is_alive() and transport.is_active()
