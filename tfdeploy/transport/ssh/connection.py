"""Open one SSH connection, through its jump hosts, with Fabric and the settings of ssh_config."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from tfdeploy.transport import ATTEMPTS, CLOCK, wait_before_retry
from tfdeploy.transport.rsync import DROPPED
from tfdeploy.transport.ssh.config import CONNECT_TIMEOUT_S
from tfdeploy.transport.ssh.errors import (
    CONNECT_FAILED,
    NO_ANSWER,
    NO_REASON,
    PROHIBITED,
    SSH_ERRORS,
    JumpHostCannotConnect,
    JumpHostMayNotConnect,
    MissingKeys,
    NoAnswer,
    ProxyFailed,
    is_refusal_of_keys,
    translate,
)
from tfdeploy.transport.ssh.host_keys import HostKeyPolicy, RefusedHostKey, transport_factory
from tfdeploy.transport.ssh.known_hosts import KnownKeys, look_up_keys
from tfdeploy.transport.ssh.proxy import ProxyProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.transport.ssh.config import Route, SshConfig

# A host that is up accepts a connection at once: this is time for three packets, of which two get
# lost. A handshake has longer: a busy host needs time for it.
ACCEPT_TIMEOUT_S = 3.5
BANNER_TIMEOUT_S = 20
USER_TIMEOUT_MS = 20_000  # for sent bytes to be acknowledged, else the network is dead
KEEPALIVE_S = 15
ALIVE_CACHE_S = 2.0  # how long an answer to is_alive stays valid
# A host that trains on all of its CPUs may need seconds; a new connection would need more.
ALIVE_TIMEOUT_S = 5.0
# Paramiko's reader checks 10 times a second whether the connection was closed; `close` wakes it, so
# that it needs no shorter timeout.
SOCKET_TIMEOUT_S = 5.0


_log = logging.getLogger(__name__)


class HandshakeTimedOut(paramiko.SSHException):
    """The host began a handshake and did not finish it in time."""


class SshConnection:
    """A connection and what it goes through, which Fabric does not close."""

    def __init__(
        self, connection: fabric.Connection, gateways: Sequence[fabric.Connection | ProxyProcess]
    ) -> None:
        self._connection = connection
        self._gateways = gateways
        self._channels: list[paramiko.Channel] = []
        self._users = 0  # threads that may be about to open a channel
        self._state_lock = threading.Lock()
        self._check_lock = threading.Lock()
        self._checked_at = time.clock_gettime(CLOCK)
        self._answered = True

    @property
    def is_connected(self) -> bool:
        """Whether it is open, as far as the controller knows."""
        return bool(self._connection.is_connected)

    @property
    def is_idle(self) -> bool:
        with self._state_lock:
            self._channels = [channel for channel in self._channels if not channel.closed]
            return not self._channels and not self._users

    def acquire(self) -> None:
        """Keep it from being idle until `release` was called as often."""
        with self._state_lock:
            self._users += 1

    def release(self) -> None:
        with self._state_lock:
            self._users -= 1

    def is_alive(self) -> bool:
        """Return whether the host answers; ask it, unless it answered a moment ago. A changed
        network or a laptop that slept breaks a connection without notice."""
        with self._check_lock:
            now = time.clock_gettime(CLOCK)
            if self.is_connected and now - self._checked_at > ALIVE_CACHE_S:
                self._answered = _answers(self._connection.transport)
                self._checked_at = time.clock_gettime(CLOCK)
            return self.is_connected and self._answered

    def has(self, channel: paramiko.Channel) -> bool:
        """Return whether a channel is one of this connection."""
        return channel.get_transport() is self._connection.transport

    def open_session(self) -> paramiko.Channel:
        """Open a channel. Raises paramiko.ChannelException if sshd allows no more of them."""
        transport = self._connection.transport
        try:
            channel: paramiko.Channel = transport.open_session(timeout=BANNER_TIMEOUT_S)
        except paramiko.SSHException as error:
            if str(error) == NO_REASON and transport.is_active():
                raise paramiko.ChannelException(CONNECT_FAILED, NO_REASON) from None
            raise
        with self._state_lock:
            self._channels.append(channel)
        return channel

    def close(self) -> None:
        with suppress(Exception):  # wakes the threads that wait for it
            self._connection.transport.sock.shutdown(socket.SHUT_RDWR)
        _close([self._connection, *self._gateways])


def connect(route: Route, accept_new: bool) -> SshConnection:
    """Open a connection; retry a handshake that sshd dropped.

    Raises SSH_ERRORS (see errors.py), and HostError for a jump host.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return _connect_once(route, accept_new)
        except SSH_ERRORS as error:
            if not _was_dropped(error):
                raise
            wait_before_retry(route.name, attempt, str(error) or type(error).__name__)
    return _connect_once(route, accept_new)


def _connect_once(route: Route, accept_new: bool) -> SshConnection:
    gateways: list[fabric.Connection] = []
    started = time.monotonic()
    proxies: list[ProxyProcess] = []
    try:
        gateway: fabric.Connection | None = None
        for jump, settings in route.jumps:
            gateway = _make_connection(settings, gateways[0] if gateways else None, accept_new)
            gateways.insert(0, gateway)
            _open_jump_host(route.name, jump, gateway, settings)
        connection = _make_connection(route.config, gateway, accept_new)
        if route.config.proxy_command:
            proxies.append(ProxyProcess(route.config.proxy_command))
            _open_through_proxy(connection, route.config, proxies[0])
        else:
            if gateway is None:
                connection.connect_kwargs["sock"] = _connect_socket(route.config)
            _open(connection, route.config)
    except BaseException:
        _close([*gateways, *proxies])
        raise
    for each in (*gateways, connection):
        _set_socket_options(each.transport.sock)
        each.transport.set_keepalive(KEEPALIVE_S)
    took_s = time.monotonic() - started
    _log.debug("%s: Paramiko connected to %s in %.3f s", route.name, route, took_s)
    return SshConnection(connection, [*gateways, *proxies])


def _open_through_proxy(
    connection: fabric.Connection, config: SshConfig, proxy: ProxyProcess
) -> None:
    connection.connect_kwargs["sock"] = proxy.socket
    try:
        _open(connection, config)
    except SSH_ERRORS as error:
        if failure := _proxy_failure(error, proxy):
            raise ProxyFailed(failure) from None
        raise


def _proxy_failure(error: BaseException, proxy: ProxyProcess) -> str:
    """Return why no connection was made through a ProxyCommand, in its own words; "" if the error
    says more."""
    if _is_refusal(error) or isinstance(error, HandshakeTimedOut):  # it has reached the host
        return ""
    if not isinstance(error, NoAnswer):
        return proxy.failure()
    return f"{error}; {printed}" if (printed := proxy.printed()) else ""


def _connect_socket(config: SshConfig) -> socket.socket:
    """Return a socket that is connected to a host; Paramiko would try only its first address."""
    address = config.hostname, config.port
    try:
        return socket.create_connection(address, ACCEPT_TIMEOUT_S)
    except TimeoutError:
        raise NoAnswer(ACCEPT_TIMEOUT_S) from None
    except socket.gaierror:
        raise
    except OSError as error:
        raise NoValidConnectionsError({address: error}) from None


def _open_jump_host(name: str, jump: str, gateway: fabric.Connection, config: SshConfig) -> None:
    try:
        _open(gateway, config)
    except SSH_ERRORS as error:
        if _was_dropped(error):
            raise
        raise translate(name, error, via=jump) from None


def _make_connection(
    config: SshConfig, gateway: fabric.Connection | None, accept_new: bool
) -> fabric.Connection:
    """Return a connection that is not open yet."""
    keys = known_keys(config)
    connection = fabric.Connection(
        config.hostname,
        user=config.user,
        port=config.port,
        gateway=gateway,
        connect_timeout=CONNECT_TIMEOUT_S,
        config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
        connect_kwargs={
            "key_filename": [str(key) for key in config.identity_files if key.exists()],
            "look_for_keys": False,
            "allow_agent": not config.identities_only,
            "banner_timeout": BANNER_TIMEOUT_S,
            "auth_timeout": BANNER_TIMEOUT_S,
            # How long a jump host may take to connect to the next host.
            "channel_timeout": CONNECT_TIMEOUT_S,
            "transport_factory": transport_factory(keys),
        },
    )
    policy = HostKeyPolicy(keys, config.new_keys_file if accept_new else None)
    connection.client.set_missing_host_key_policy(policy)
    return connection


def known_keys(config: SshConfig) -> KnownKeys:
    """Return the keys of a host in known_hosts, under the names that ssh looks for."""
    return look_up_keys(config.known_hosts, config.known_names)


def _open(connection: fabric.Connection, config: SshConfig) -> None:
    try:
        connection.open()
        if not connection.transport.is_authenticated():  # for Paramiko, a part of a login is one
            raise paramiko.AuthenticationException("it asks for more than one key")
    except BaseException as error:
        transport = connection.client.get_transport()
        connection.client.close()  # Fabric closes only open connections
        if isinstance(error, paramiko.ChannelException):
            # No session was requested yet, so this is the jump host's answer.
            is_allowed = error.code != PROHIBITED
            raise (JumpHostCannotConnect if is_allowed else JumpHostMayNotConnect) from None
        if NO_ANSWER in str(error):
            limit_s = connection.connect_timeout
            if transport and transport.remote_version:
                message = f"the handshake was not finished within {limit_s:g} s"
                raise HandshakeTimedOut(message) from None
            raise NoAnswer(limit_s) from None
        missing = config.missing_keys() if is_refusal_of_keys(error) else []
        if missing:
            raise MissingKeys(missing) from None
        raise


def _close(connections: Sequence[fabric.Connection | ProxyProcess]) -> None:
    for connection in connections:
        with suppress(Exception):
            connection.close()


def _was_dropped(error: BaseException) -> bool:
    """Return whether sshd dropped the handshake: above MaxStartups it closes connections before its
    banner. An unfinished handshake may only mean a busy sshd."""
    if _is_refusal(error):
        return False
    if isinstance(error, ProxyFailed):  # it may be an ssh to a jump host
        return bool(DROPPED.search(str(error).encode()))
    dropped = EOFError | ConnectionResetError | HandshakeTimedOut
    return isinstance(error, dropped) or "banner" in str(error)


def _is_refusal(error: BaseException) -> bool:
    """Return whether one side refused the other's key, after it was reached."""
    return isinstance(error, paramiko.AuthenticationException | RefusedHostKey)


def _set_socket_options(sock: Any) -> None:
    """Send small requests at once (Paramiko leaves Nagle's algorithm on), and detect a dead network
    in time."""
    with suppress(OSError, AttributeError):  # a stream through a proxy has no options
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(SOCKET_TIMEOUT_S)
        # Only Linux has it: last, because elsewhere it raises AttributeError.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


def _answers(transport: paramiko.Transport) -> bool:
    """Send a request that every sshd refuses with an answer, in a thread: Paramiko waits for the
    answer without a timeout."""
    request = threading.Thread(
        target=transport.global_request, args=("keepalive@openssh.com",), daemon=True
    )
    request.start()
    request.join(ALIVE_TIMEOUT_S)
    return not request.is_alive() and transport.is_active()
