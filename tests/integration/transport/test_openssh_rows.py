"""Settings of ssh's configuration that only OpenSSH follows: each one works, and a host that is
down or refuses the user is one sentence."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.ssh_sites import HOST, SshSite, certify
from support.sshd import PrivateEtcSshd, public, with_private_etc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.sshd import Sshd

    Row = Callable[..., Sshd]

pytestmark = pytest.mark.slow
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sshd its own /etc")

REFUSED = "it refused every key that was offered"
PASSWD = """\
sshd:x:102:65534::/run/sshd:/bin/false
root:x:0:0:root:{home}:{shell}
"""


def write_passwd(site: SshSite, shell: str) -> None:
    """Give root another home and login shell, for a PrivateEtcSshd."""
    etc = site.folder / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(PASSWD.format(home=site.folder, shell=shell))


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def hostbased(site: SshSite, *lines: str) -> Sshd:
    """The controller and the host have an /etc/ssh each. OpenSSH takes root's trusted machines from
    his home."""
    etc, own = site.folder / "etc/ssh", site.folder / "controller/ssh"
    for folder in (etc, own):
        folder.mkdir(parents=True)
    write_passwd(site, "/bin/sh")
    key = public(site.keys.other_host)
    (etc / "ssh_known_hosts").write_text(f"localhost,127.0.0.1 {key}")
    (site.folder / ".shosts").write_text("localhost\n127.0.0.1\n")
    shutil.copy(site.keys.other_host, own / "ssh_host_ed25519_key")
    (own / "ssh_host_ed25519_key.pub").write_text(key)
    (own / "ssh_config").write_text("EnableSSHKeysign yes\n")
    words = with_private_etc(own.parent, shutil.which("ssh"))
    quoted = " ".join(f"'{word}'" for word in words)
    script(site.folder / "programs/ssh", f'exec {quoted} "$@"')
    site.entry |= {"HostbasedAuthentication": "yes", "IdentityFile": str(site.keys.stranger)}
    own_lines = ("HostbasedAuthentication yes", "IgnoreRhosts no")
    return site.sshd(*lines, *own_lines, kind=PrivateEtcSshd)


def user_certificate(site: SshSite, *lines: str) -> Sshd:
    stranger = site.folder / "stranger.pub"
    shutil.copy(site.keys.stranger.with_suffix(".pub"), stranger)
    certify(site.keys.other_host, stranger, "-n", "root,nobody")
    site.entry["CertificateFile"] = f"{site.folder}/stranger-cert.pub"
    site.entry["IdentityFile"] = str(site.keys.stranger)
    return site.sshd(*lines, f"TrustedUserCAKeys {site.keys.other_host}.pub")


def host_certificate(site: SshSite, *lines: str) -> Sshd:
    certified = site.folder / "host.pub"
    shutil.copy(site.keys.host.with_suffix(".pub"), certified)
    certify(site.keys.other_host, certified, "-h")
    started = site.sshd(*lines, f"HostCertificate {site.folder}/host-cert.pub")
    site.known_lines = [f"@cert-authority * {public(site.keys.other_host)}"]
    return started


def identity_agent(site: SshSite, *lines: str) -> Sshd:
    site.entry["IdentityAgent"] = str(site.agent(site.keys.user))
    site.entry["IdentityFile"] = f"{site.keys.user}.pub"
    return site.sshd(*lines)


def known_hosts_command(site: SshSite, *lines: str) -> Sshd:
    started = site.sshd(*lines, is_known=False)
    known = site.folder / "from_command"
    known.write_text(started.known_hosts_line)
    site.entry["KnownHostsCommand"] = str(script(site.folder / "command", f"cat {known}"))
    return started


def revoked_host_keys(site: SshSite, *lines: str) -> Sshd:
    shutil.copy(f"{site.keys.other_host}.pub", site.folder / "revoked")
    site.entry["RevokedHostKeys"] = f"{site.folder}/revoked"
    return site.sshd(*lines)


def revoked_host(site: SshSite) -> None:
    revoked_host_keys(site)
    shutil.copy(f"{site.keys.host}.pub", site.folder / "revoked")


def no_revoked_file(site: SshSite) -> None:
    revoked_host_keys(site)
    (site.folder / "revoked").unlink()


def other_key_from_command(site: SshSite) -> None:
    started = known_hosts_command(site)
    line = f"[127.0.0.1]:{started.port} {public(site.keys.other_host)}"
    (site.folder / "from_command").write_text(line)


def no_key_from_command(site: SshSite) -> None:
    known_hosts_command(site)
    (site.folder / "from_command").write_text("")


def failing_command(site: SshSite) -> None:
    known_hosts_command(site)
    script(site.folder / "command", "exit 1")


def setting(keyword: str, value: str) -> Row:
    """Return a row that is one line of ssh's configuration."""

    def row(site: SshSite, *lines: str) -> Sshd:
        site.entry[keyword] = value
        return site.sshd(*lines)

    return row


SETTINGS = [
    pytest.param(hostbased, "HostbasedAuthentication yes", id="hostbased", marks=as_root),
    pytest.param(known_hosts_command, "KnownHostsCommand ", id="known hosts command"),
    pytest.param(revoked_host_keys, "RevokedHostKeys ", id="revoked host keys"),
    pytest.param(setting("BindAddress", "127.0.0.9"), "BindAddress 127.0.0.9", id="address"),
    pytest.param(setting("BindInterface", "lo"), "BindInterface lo", id="interface", marks=as_root),
    pytest.param(setting("AddressFamily", "inet"), "AddressFamily inet", id="IP version"),
]
ROWS = [
    *SETTINGS,
    pytest.param(user_certificate, "CertificateFile ", id="user certificate"),
    pytest.param(host_certificate, "a certificate authority", id="host certificate"),
    pytest.param(identity_agent, "IdentityAgent ", id="agent"),
    pytest.param(setting("PKCS11Provider", "/usr/lib/card.so"), "PKCS11Provider ", id="card"),
    pytest.param(setting("SecurityKeyProvider", "/usr/lib/fido.so"), "SecurityKey", id="FIDO"),
    pytest.param(setting("StrictHostKeyChecking", "accept-new"), "StrictHost", id="new host key"),
    pytest.param(setting("VerifyHostKeyDNS", "yes"), "VerifyHostKeyDNS true", id="DNS"),
    pytest.param(setting("Ciphers", "chacha20-poly1305@openssh.com"), "ciphers ", id="ciphers"),
    pytest.param(
        setting("KexAlgorithms", "diffie-hellman-group14-sha1"), "kexalgorithms ", id="old"
    ),
    pytest.param(
        setting("PreferredAuthentications", "password,publickey"), "Preferred", id="password"
    ),
]


@pytest.fixture
def programs(site: SshSite, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first in PATH."""
    folder = site.folder / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("row", "reason"), SETTINGS)
def test_a_setting_that_only_openssh_follows(site, row, reason):
    row(site)
    site.make_project()
    assert site.reason().startswith(reason)
    site.works()


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("row", "reason"), ROWS)
def test_a_host_that_is_down_or_refuses_the_user(site, row, reason):
    sshd = row(site, "DenyUsers *", "KexAlgorithms +diffie-hellman-group14-sha1")
    site.make_project()
    assert site.reason().startswith(reason)
    assert f"{HOST}: {REFUSED}" in site.error()
    sshd.stop()
    port = site.entry["Port"]
    assert f"{HOST}: no SSH connection: 127.0.0.1 port {port}: Connection refused" in site.error()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (revoked_host, "its host key, or the authority that signed it, is revoked in {}/revoked"),
        (no_revoked_file, "ssh can't read its RevokedHostKeys {}/revoked: No such file"),
        (other_key_from_command, "its host key is not the one in known_hosts"),
        (no_key_from_command, "its host key is unknown"),
        (failing_command, "the KnownHostsCommand of ssh's configuration failed"),
        (setting("BindAddress", "192.0.2.1"), "from the controller's address 192.0.2.1: Cannot"),
        (setting("AddressFamily", "inet6"), "it has no address of the IP version"),
    ],
)
def test_a_setting_that_leads_nowhere_is_named(site, row, message):
    row(site)
    site.make_project()
    error = site.error()
    assert f"{HOST}: " in error
    assert message.format(site.folder) in error


@as_root
@pytest.mark.parametrize(
    ("transport", "shell", "only_there"),
    [
        ("openssh", "fish", "set -q FISH_VERSION"),
        ("openssh", "tcsh", "test $?tcsh = 1"),
        ("fabric", "tcsh", "test $?tcsh = 1"),
    ],
)
def test_a_user_with_another_login_shell(site, transport, shell, only_there):
    """Fabric sends the shell the same text; with fish too in faults/test_machines_unusual."""
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"{shell} missing: apt-get install {shell}")
    write_passwd(site, path)
    site.sshd(kind=PrivateEtcSshd)
    site.make_project(transport=transport)
    site.ssh(HOST, only_there)
    site.works()


def test_a_jump_host_that_refuses_the_user_or_is_down(site):
    jump = user_certificate(site, "DenyUsers *")
    site.jumps["bastion"] = {**site.entry}
    site.entry = {"ProxyJump": "bastion", "HostName": "127.0.0.1", "Port": "1"}
    site.make_project()
    assert site.reason().startswith("for the jump host bastion, CertificateFile ")
    assert f"{HOST}: {REFUSED} (through jump host bastion)" in site.error()
    jump.stop()
    error = site.error()
    assert f"{HOST}: no SSH connection: " in error
    assert "Connection refused (through jump host bastion)" in error
