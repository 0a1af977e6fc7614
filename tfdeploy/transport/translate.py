"""The one place where foreign exceptions (socket, Paramiko) become tfdeploy's own."""

from __future__ import annotations

import shlex
import socket

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from tfdeploy.errors import AuthenticationFailed, HostError, HostKeyRefused, Unreachable
from tfdeploy.transport import openssh
from tfdeploy.transport.host_keys import UnknownHostKey

NO_ANSWER = "No existing session"  # Paramiko's words, where a handshake is not done in time
# RFC 4254's SSH_OPEN_CONNECT_FAILED: a jump host says so of what is behind it, and sshd of what
# goes beyond its MaxSessions.
CONNECT_FAILED = 2
FOREIGN = (paramiko.SSHException, OSError, EOFError, UnicodeError)
"""What Paramiko and the socket below it raise."""


class NotReached(paramiko.SSHException):
    """A jump host can't connect to what is behind it."""


def translated(host: str, error: BaseException, *, via: str = "") -> HostError:
    """Our error for a foreign one; `via` names the jump host where it happened.

    Anything that isn't listed here is a defect of tfdeploy, and raised as it is.
    """
    ours = _translated(host, error)
    if via:
        ours.message = f"on the way, at jump host {via}: {ours.message}"
    return ours


def _translated(host: str, error: BaseException) -> HostError:
    return _about_keys(host, error) or _about_the_way(host, error)


def _about_keys(host: str, error: BaseException) -> HostError | None:
    """The host was reached, and one side refused the other."""
    match error:
        case UnknownHostKey():
            return HostKeyRefused(
                host,
                f"its host key is unknown: {error}",
                "connect once with ssh and compare the fingerprint, or say --accept-new-host-keys",
            )
        case paramiko.BadHostKeyException():
            return HostKeyRefused(
                host,
                "its host key is not the one in known_hosts: the machine was set up anew, "
                "or someone is between you and it",
                f"when you know why: ssh-keygen -R {shlex.quote(error.hostname)}",
            )
        case paramiko.PasswordRequiredException():
            return AuthenticationFailed(
                host, "the key is locked with a passphrase", "ssh-add unlocks it once for all"
            )
        case paramiko.SSHException() if "No authentication methods" in str(error):
            return AuthenticationFailed(
                host, "there is no key to offer it", "say identity_file in hosts.toml, or ssh-add"
            )
        case paramiko.AuthenticationException():
            return AuthenticationFailed(
                host,
                "it refused every key that was offered",
                f"try: ssh {host}; then see user and identity_file in hosts.toml",
            )
    return None


def _about_the_way(host: str, error: BaseException) -> HostError:
    """The host was not reached, or is not any more."""
    match error:
        case HostError():
            return error
        case NoValidConnectionsError():
            causes = [f"{to[0]} port {to[1]}: {e.args[-1]}" for to, e in error.errors.items()]
            return Unreachable(host, f"no SSH connection: {'; '.join(causes)}", f"try: ssh {host}")
        case UnicodeError():
            return Unreachable(host, f"its name is unknown here: {error}")
        case socket.gaierror():
            return Unreachable(host, f"its name is unknown here: {error.strerror}")
        case NotReached():
            return Unreachable(host, "the jump host can't connect to it", f"try: ssh {host}")
        case paramiko.SSHException() if NO_ANSWER in str(error):
            return Unreachable(host, f"no SSH answer within {openssh.CONNECT_TIMEOUT_S} s")
        case TimeoutError():
            return Unreachable(host, f"no SSH answer within {openssh.CONNECT_TIMEOUT_S} s")
        case paramiko.SSHException() | OSError() | EOFError():
            return Unreachable(host, f"the SSH connection failed: {str(error) or 'it was closed'}")
    raise error
