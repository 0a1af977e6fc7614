"""What both SSH transports say about a host that cannot be reached or refuses the connection."""

from __future__ import annotations

REFUSED = "it refused every key that was offered"
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
