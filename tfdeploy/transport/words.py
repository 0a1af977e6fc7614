"""What both SSH transports say about a host that cannot be reached or refuses the connection."""

from __future__ import annotations

REFUSED = "it refused every key that was offered"
REFUSED_HINT = (
    "correct user and identity_file in hosts.toml, or User and IdentityFile in ssh_config"
)
UNKNOWN_KEY_HINT = (
    "connect once with ssh and compare the fingerprint, or pass --accept-new-host-keys"
)
CHANGED_KEY = (
    "its host key is not the one in known_hosts: the machine was reinstalled, or another machine "
    "pretends to be it"
)
REVOKED_KEY_HINT = "give the machine a new host key; only then remove the @revoked line"
UNKNOWN_NAME_HINT = "correct its name, or set the host's hostname in hosts.toml or ssh_config"
NO_ANSWER_HINT = (
    "check that the machine is on, and that its address, port and firewall let SSH through"
)
NOT_SSH = "it accepts the connection, but does not answer as an SSH server"
NOT_SSH_HINT = (
    "check the host's port in hosts.toml or ssh_config; if sshd is busy or limits new connections "
    "(MaxStartups), try again"
)
NO_WAY_THROUGH = "no SSH connection through {}: {}"
MAX_LINE = 160  # characters of a line that a message quotes
MAX_LINES = 2


def last_words(*outputs: bytes | bytearray) -> str:
    """Return the last lines that a program printed on its streams, for a message."""
    text = "\n".join(output.decode(errors="replace") for output in outputs)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = (f"{line[:MAX_LINE]}…" if len(line) > MAX_LINE else line for line in lines[-MAX_LINES:])
    return "; ".join(shown) or "it printed nothing"


def endless(output: bytes | bytearray) -> str:
    """Return what is wrong with a program that prints without end."""
    return f"it prints without end: {last_words(output[-MAX_LINE * 4 :])}"
