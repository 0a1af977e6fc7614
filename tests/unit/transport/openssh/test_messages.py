"""What ssh prints about a failed connection, in tfdeploy's words."""

from __future__ import annotations

import pytest

from tfdeploy.errors import HostKeyRefused, Unreachable
from tfdeploy.transport.openssh.messages import translate

END = "\nHost key verification failed.\n"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            f"Host key ED25519 SHA256:x revoked by file /etc/ssh/revoked{END}",
            HostKeyRefused,
            "its host key, or the authority that signed it, is revoked in /etc/ssh/revoked",
        ),
        (
            "Error checking host key ED25519 SHA256:x in revoked keys file /etc/ssh/revoked: "
            f"No such file or directory{END}",
            HostKeyRefused,
            "ssh can't read its RevokedHostKeys /etc/ssh/revoked: No such file or directory",
        ),
        (
            f"KnownHostsCommand failed{END}",
            HostKeyRefused,
            "the KnownHostsCommand of ssh's configuration failed",
        ),
        (
            f'Could not stat KnownHostsCommand-ORDER "/opt/keys": No such file or directory{END}',
            HostKeyRefused,
            "the KnownHostsCommand of ssh's configuration failed",
        ),
        (
            "bind 10.9.8.7: Cannot assign requested address\r\n"
            "ssh: connect to host gpu-01 port 22: failure\r\n",
            Unreachable,
            "ssh can't connect from the controller's address 10.9.8.7: "
            "Cannot assign requested address",
        ),
        (
            "ssh: Could not resolve hostname 10.0.0.1: Address family for hostname not supported",
            Unreachable,
            "it has no address of the IP version in ssh's configuration (AddressFamily)",
        ),
    ],
)
def test_a_setting_of_the_configuration_is_named(text, kind, message):
    error = translate("gpu-01", text)
    assert type(error) is kind
    assert error.message == message


def test_the_end_of_sshs_line_is_not_part_of_the_message():
    error = translate("gpu-01", "ssh: connect to host b port 22: Connection refused\r\nstdio\r\n")
    assert error.message == "no SSH connection: b port 22: Connection refused"


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("publickey", "it refused every key that was offered"),
        ("publickey,password", "it accepted no key, and asks for a password or a second factor"),
        ("keyboard-interactive", "it asks for a password or a second factor"),
    ],
)
def test_a_refused_login_says_whether_a_key_was_accepted(methods, message):
    error = translate("gpu-01", f"bob@gpu-01: Permission denied ({methods}).")
    assert error.message == message
