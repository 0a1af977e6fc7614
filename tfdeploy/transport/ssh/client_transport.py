"""Paramiko's transport, for hosts that may lie: it asks the user nothing, stores no more of what a
host sends than was agreed, and notices another host key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA

if TYPE_CHECKING:
    from collections.abc import Callable


class HostLies(paramiko.SSHException):
    """A host broke the protocol after the login; the message says how."""


def _within_window(feed: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a handler of output that ends the connection if a host sends more than the window of
    the channel allows, which Paramiko would store (RFC 4254, 5.2)."""

    def take(channel: Any, message: Any) -> None:
        feed(channel, message)
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > channel.in_window_size:
            raise HostLies("it sends more than it may")

    return take


class ClientTransport(paramiko.Transport):
    _channel_handler_table: ClassVar[dict[int, Callable[[Any, Any], None]]] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: _within_window(paramiko.Channel._feed),  # type: ignore[attr-defined]
        MSG_CHANNEL_EXTENDED_DATA: _within_window(
            paramiko.Channel._feed_extended  # type: ignore[attr-defined]
        ),
    }

    def auth_interactive_dumb(self, *_: Any, **__: Any) -> list[str]:
        """Refuse: Paramiko would print what the host says, as it is, and send it the answer that
        is typed. OpenSSH asks, and names the host."""
        raise paramiko.AuthenticationException("it asks for more than a key")

    def _verify_key(self, host_key: bytes, sig: bytes) -> None:
        """Only the first key is compared with known_hosts."""
        before = self.host_key
        super()._verify_key(host_key, sig)  # type: ignore[misc]
        if before is not None and before != self.host_key:
            raise HostLies("its host key changed during the connection")
