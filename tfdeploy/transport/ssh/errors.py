"""Translate the exceptions of sockets and Paramiko into tfdeploy's own; no other module does."""

from __future__ import annotations

import shlex
import socket
from typing import TYPE_CHECKING

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from tfdeploy.errors import AuthenticationFailed, HostError, HostKeyRefused, Unreachable
from tfdeploy.transport import words
from tfdeploy.transport.ssh import config
from tfdeploy.transport.ssh.host_keys import (
    ChangedHostKey,
    HostKeyNotAdded,
    RefusedHostKey,
    RevokedHostKey,
    UnknownHostKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NO_ANSWER = "No existing session"  # Paramiko's message if a handshake is not finished in time
# Paramiko's, if a channel was refused, and another thread has read the reason: Paramiko keeps one
# for all threads.
NO_REASON = "Unable to open channel."
NO_LOGIN = "Authentication timeout"  # Paramiko's, if a host does not answer a login
NO_KEY = "No authentication methods"  # Paramiko's, if there is no key to offer
# RFC 4254's SSH_OPEN_CONNECT_FAILED: from a jump host that can't connect to the next host, and from
# an sshd that has reached MaxSessions.
CONNECT_FAILED = 2
PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
SSH_ERRORS = (paramiko.SSHException, OSError, EOFError, UnicodeError)
"""The exceptions that Paramiko and its sockets raise."""


class NoAnswer(TimeoutError):
    """The host gave no answer within `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds = seconds


class JumpHostCannotConnect(paramiko.SSHException):
    """A jump host can't connect to the next host."""


class JumpHostMayNotConnect(paramiko.SSHException):
    """A jump host does not allow connections through it."""


class ProxyFailed(paramiko.SSHException):
    """No connection was made through a ProxyCommand; the message is in its own words."""


class MissingKeys(paramiko.AuthenticationException):
    """No key was accepted, and ssh's configuration names key files that do not exist."""

    def __init__(self, files: Iterable[Path]) -> None:
        super().__init__(", ".join(map(str, files)))


def is_refusal_of_keys(error: BaseException) -> bool:
    """Return whether the host accepted no key, or there was none to offer."""
    if isinstance(error, paramiko.PasswordRequiredException):
        return False
    return isinstance(error, paramiko.AuthenticationException) or NO_KEY in str(error)


def translate(host: str, error: BaseException, *, via: str = "") -> HostError:
    """Return tfdeploy's error for one of SSH_ERRORS; `via` names the jump host where it occurred.

    Any other error is a defect of tfdeploy, and raised as it is.
    """
    translated = (
        _translate_host_key_error(host, error)
        or _translate_authentication_error(host, error)
        or _translate_connection_error(host, error)
    )
    if not via:
        return translated
    message = f"at jump host {via}: {translated.message}"
    return type(translated)(host, message, translated.hint)


def _translate_host_key_error(host: str, error: BaseException) -> HostError | None:
    """Translate a refusal of the host's key by the controller."""
    match error:
        case UnknownHostKey():
            return HostKeyRefused(
                host,
                f"its host key is unknown: {error}{_why_unknown(error)}",
                words.UNKNOWN_KEY_HINT,
            )
        case HostKeyNotAdded():
            return HostKeyRefused(
                host,
                f"its new host key can't be added to {error.reason}",
                "expected a file of your own as the first UserKnownHostsFile",
            )
        case RevokedHostKey():
            return HostKeyRefused(
                host,
                f"its host key is revoked in known_hosts: {error}",
                words.REVOKED_KEY_HINT,
            )
        case ChangedHostKey():
            return HostKeyRefused(
                host,
                words.CHANGED_KEY,
                f"if you know the reason: ssh-keygen -R {shlex.quote(error.known.name)}",
            )
    return None


def _translate_authentication_error(host: str, error: BaseException) -> HostError | None:
    """Translate a refusal of the user's keys by the host, or the lack of a usable key."""
    match error:
        case paramiko.PasswordRequiredException():
            return AuthenticationFailed(
                host, "the key is locked with a passphrase", "unlock it for ssh-agent: ssh-add"
            )
        case MissingKeys():
            return AuthenticationFailed(
                host,
                f"it accepted no key, and these IdentityFiles do not exist: {error}",
                "correct IdentityFile in ssh_config, or set identity_file in hosts.toml",
            )
        case paramiko.SSHException() if NO_KEY in str(error):
            return AuthenticationFailed(
                host, "there is no key to offer", "set identity_file in hosts.toml, or run ssh-add"
            )
        case paramiko.ssh_exception.IncompatiblePeer():
            return AuthenticationFailed(
                host,
                f"its sshd has no algorithm in common with Fabric: {error}",
                'set transport = "openssh" in hosts.toml',
            )
        case paramiko.AuthenticationException() if NO_LOGIN in str(error):
            return Unreachable(host, "it did not answer the login", words.NO_ANSWER_HINT)
        case paramiko.AuthenticationException():
            return AuthenticationFailed(host, words.REFUSED, words.REFUSED_HINT)
    return None


def _why_unknown(error: RefusedHostKey) -> str:
    """Return why a key that ssh may accept is unknown to tfdeploy."""
    if error.known.authority:
        return (
            " (known_hosts has its certificate authority; Fabric does not support host "
            'certificates, transport = "openssh" does)'
        )
    unreadable = ", ".join(error.known.unreadable_lines[:3])
    return f" (not readable: {unreadable})" if unreadable else ""


def _translate_connection_error(host: str, error: BaseException) -> HostError:
    """Translate an error of a host that was not reached, or whose connection was lost."""
    match error:
        case HostError():
            return error
        case NoValidConnectionsError():
            causes = [f"{to[0]} port {to[1]}: {e.args[-1]}" for to, e in error.errors.items()]
            message = f"no SSH connection: {'; '.join(causes)}"
            return Unreachable(host, message, words.NO_ANSWER_HINT)
        case UnicodeError():
            return Unreachable(host, f"its name is unknown: {error}", words.UNKNOWN_NAME_HINT)
        case socket.gaierror():
            message = f"its name is unknown: {error.strerror}"
            return Unreachable(host, message, words.UNKNOWN_NAME_HINT)
        case JumpHostCannotConnect():
            return Unreachable(host, "the jump host can't connect to it", f"try: ssh {host}")
        case JumpHostMayNotConnect():
            message = "the jump host allows no connection through it"
            hint = "correct AllowTcpForwarding or PermitOpen in the sshd_config of the jump host"
            return Unreachable(host, message, hint)
        case ProxyFailed():
            message = words.NO_WAY_THROUGH.format("ProxyCommand", error)
            return Unreachable(host, message, f"try: ssh {host}")
        case NoAnswer():
            message = f"no SSH answer within {error.seconds:g} s"
            return Unreachable(host, message, words.NO_ANSWER_HINT)
        case TimeoutError():
            message = f"no SSH answer within {config.CONNECT_TIMEOUT_S} s"
            return Unreachable(host, message, words.NO_ANSWER_HINT)
        case paramiko.SSHException() if "banner" in str(error):
            return Unreachable(host, words.NOT_SSH, words.NOT_SSH_HINT)
        case paramiko.SSHException() | OSError() | EOFError():
            message = f"the SSH connection failed: {str(error) or 'it was closed'}"
            return Unreachable(host, message, f"try: ssh {host}")
    raise error
