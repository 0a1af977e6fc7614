"""Translate what ssh prints about a failed connection into tfdeploy's errors."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime
from typing import TYPE_CHECKING

from tfdeploy.errors import AuthenticationFailed, HostError, HostKeyRefused, Unreachable
from tfdeploy.transport import words

if TYPE_CHECKING:
    from collections.abc import Iterable

ASKED = ("keyboard-interactive", "password")
DENIED = re.compile(r"Permission denied \(([^)]*)\)|Too many authentication failures")
VALID = re.compile(r"^\s*Valid: from (\S+) to (\S+)", re.MULTILINE)
# How ssh begins the lines about its own errors; the last one says most.
OWN_ERROR = re.compile(
    r"^(ssh: |kex_exchange|Connection |client_loop: |mux_client|Unable to negotiate|Bad "
    r"|Host key verification failed|Timeout, server|banner exchange|Load key|.*terminated by)"
)
# What ssh prints if the other end, which may be a ProxyCommand, only closes the connection.
CLOSING = re.compile(
    r"kex_exchange_identification.*|^(?:banner exchange|Connection (?:closed|reset|to UNKNOWN)).*",
    re.MULTILINE,
)
# What ssh prints, the error, and its hint. {0} is the first group.
MEANINGS: tuple[tuple[str, type[HostError], str, str], ...] = (
    (
        r"revoked by file (.*)",
        HostKeyRefused,
        "its host key, or the authority that signed it, is revoked in {0}",
        "give the machine a new host key",
    ),
    (
        r"in revoked keys file (.*)",
        HostKeyRefused,
        "ssh can't read its RevokedHostKeys {0}",
        "correct RevokedHostKeys in ssh's configuration",
    ),
    (
        r"KnownHostsCommand failed|Could not stat KnownHostsCommand",
        HostKeyRefused,
        "the KnownHostsCommand of ssh's configuration failed",
        "correct it; connect once with ssh -v to see what it does",
    ),
    (
        r"REVOKED HOST KEY DETECTED|Host key .* revoked|host key .* is marked as revoked",
        HostKeyRefused,
        "its host key, or the authority that signed it, is revoked in known_hosts",
        words.REVOKED_KEY_HINT,
    ),
    (
        r"HOST IDENTIFICATION HAS CHANGED",
        HostKeyRefused,
        words.CHANGED_KEY,
        "if you know the reason, remove the old key with ssh-keygen -R",
    ),
    (
        r"Certificate invalid: (.*)",
        HostKeyRefused,
        "its host certificate is invalid: {0}",
        "have its certificate authority sign its host key again",
    ),
    (
        r"No (\S+) host key is known|Host key verification failed",
        HostKeyRefused,
        "its host key is unknown",
        words.UNKNOWN_KEY_HINT,
    ),
    (
        r"Address family for hostname not supported",
        Unreachable,
        "it has no address of the IP version in ssh's configuration (AddressFamily)",
        "correct AddressFamily, or set the host's hostname in hosts.toml or ssh_config",
    ),
    (
        r"(?m)^bind (.*)",
        Unreachable,
        "ssh can't connect from the controller's address {0}",
        "correct BindAddress in ssh's configuration",
    ),
    (
        r"Could not resolve hostname (.*)",
        Unreachable,
        "its name is unknown: {0}",
        words.UNKNOWN_NAME_HINT,
    ),
    (
        r"connect to host (.*)",
        Unreachable,
        "no SSH connection: {0}",
        words.NO_ANSWER_HINT,
    ),
    (
        r"Connection timed out during banner exchange|(banner exchange|kex_exchange_identif).*",
        Unreachable,
        words.NOT_SSH,
        words.NOT_SSH_HINT,
    ),
    (
        r"Session open refused by peer",
        Unreachable,
        "its sshd allows no more sessions on one connection (MaxSessions)",
        "raise MaxSessions in its sshd_config",
    ),
)


def translate(host: str, text: str) -> HostError | None:
    """Return the error that ssh's messages mean; None if none of them is ssh's."""
    text = text.replace("\r\n", "\n")  # as ssh ends most of its lines
    denied = DENIED.search(text)
    if denied:
        methods = denied[1] or ""
        message, hint = words.REFUSED, words.REFUSED_HINT
        if any(method in methods for method in ASKED):
            # After a key that it accepts, it does not offer publickey any more.
            refused = "accepted no key, and " if "publickey" in methods else ""
            message = f"it {refused}asks for a password or a second factor"
            hint = f"try: ssh {host}"
        return AuthenticationFailed(host, message, hint)
    for pattern, kind, message, hint in MEANINGS:
        if found := re.search(pattern, text):
            return kind(host, message.format(*found.groups(default="")), hint)
    own = [line.strip() for line in text.splitlines() if OWN_ERROR.match(line)]
    return (
        Unreachable(host, f"the SSH connection failed: {own[-1]}", f"try: ssh {host}")
        if own
        else None
    )


def without_closing(text: str) -> str:
    """Return what is left if ssh's lines about a closed connection are removed: what a ProxyCommand
    or the ssh of a jump host has printed; "" for nothing."""
    left = CLOSING.sub("", text.replace("\r\n", "\n"))
    return left if left.strip() else ""


def with_certificates(error: HostError, files: Iterable[str]) -> HostError:
    """Return the error of a refused login; it names the certificate of the user that has expired,
    or is not valid yet: sshd does not say so."""
    for file in files:
        if problem := _problem_of(file):
            hint = "get a new certificate from its authority, then try again"
            return AuthenticationFailed(error.host, f"the certificate {file} {problem}", hint)
    return error


def _problem_of(file: str) -> str:
    """Return what is wrong with a certificate's time, in the controller's time zone."""
    try:
        argv = ["ssh-keygen", "-L", "-f", file]
        text = subprocess.run(argv, capture_output=True, text=True).stdout
    except OSError:
        return ""
    found, now = VALID.search(text), datetime.now()
    if found and found[2] != "forever" and datetime.fromisoformat(found[2]) < now:
        return f"expired at {found[2]}"
    if found and found[1] != "always" and datetime.fromisoformat(found[1]) > now:
        return f"is not valid before {found[1]}"
    return ""
