"""What Fabric can't do of ssh's configuration, as `ssh -G` prints it."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from tfdeploy.transport.openssh import choice
from tfdeploy.transport.ssh.config import SshConfig, settings

# What `ssh -G` prints on a machine whose user has configured nothing.
DEFAULTS = """\
addressfamily any
gssapiauthentication no
hostbasedauthentication no
pubkeyauthentication true
stricthostkeychecking ask
verifyhostkeydns false
securitykeyprovider internal
ciphers chacha20-poly1305@openssh.com,aes128-ctr
hostkeyalgorithms ssh-ed25519-cert-v01@openssh.com,ssh-ed25519
controlpath none
"""


def reasons(text):
    found = SshConfig("h", "u", 22, (), False, None, None, (Path("/none"),), None, None)
    return list(choice._reasons(settings(f"{text}\n{DEFAULTS}"), found))


def test_fabric_does_what_ssh_does_by_default():
    assert reasons("") == []


@pytest.mark.parametrize(
    "line",
    [
        "CertificateFile ~/.ssh/id-cert.pub",
        "IdentityAgent /run/agent.sock",
        "IdentityAgent none",
        "HostbasedAuthentication yes",
        "PKCS11Provider /usr/lib/card.so",
        "SecurityKeyProvider /usr/lib/key.so",
        "PubkeyAuthentication false",
        "KnownHostsCommand /usr/bin/keys %H",
        "RevokedHostKeys /etc/ssh/revoked",
        "VerifyHostKeyDNS true",
        "StrictHostKeyChecking accept-new",
        "PreferredAuthentications keyboard-interactive,publickey",
        "AddressFamily inet6",
        "BindAddress 10.0.0.1",
    ],
)
def test_openssh_does_what_paramiko_lacks(line):
    keyword, _, value = line.partition(" ")
    text = "\n".join(each for each in DEFAULTS.splitlines() if keyword.lower() not in each)
    found = SshConfig("h", "u", 22, (), False, None, None, (), None, None)
    values = settings(f"{keyword.lower()} {value}\n{text}")
    assert list(choice._reasons(values, found)) == [f"{line} in ssh's configuration"]


def test_the_agent_that_fabric_asks_is_no_reason(monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    assert reasons("identityagent /run/agent.sock") == []
    assert reasons("identityagent SSH_AUTH_SOCK") == []


@pytest.mark.parametrize("keyword", choice.PARAMIKO)
def test_algorithms_that_paramiko_lacks_are_a_reason(keyword):
    assert reasons(f"{keyword} new@example.com") == [
        f"{keyword} in ssh's configuration has none of Paramiko's"
    ]


def test_the_algorithms_are_those_of_the_installed_paramiko():
    names = {
        "ciphers": "ciphers", "macs": "macs", "kexalgorithms": "kex", "hostkeyalgorithms": "keys",
        "pubkeyacceptedalgorithms": "pubkeys",
    }  # fmt: skip
    found = {key: set(getattr(paramiko.Transport, f"_preferred_{n}")) for key, n in names.items()}
    assert {key: set(algorithms) for key, algorithms in choice.PARAMIKO.items()} == found


@pytest.mark.parametrize("transport", ["fabric", "openssh", "local"])
def test_hosts_toml_can_force_a_transport(transport):
    host = type("Host", (), {"transport": transport})()
    assert choice.why_openssh(host, None) == (choice.FORCED if transport == "openssh" else "")
