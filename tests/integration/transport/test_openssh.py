"""What ssh reaches, tfdeploy reaches: logins that Fabric can't do, each with a real sshd."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from support.ports import free_port
from support.ssh_sites import HOST, SshSite, certify, with_tensorflow
from support.sshd import public
from support.waiting import until

from tfdeploy.config import inventory as inventories
from tfdeploy.folders.user_folders import socket_folder
from tfdeploy.transport.openssh import choice, master
from tfdeploy.transport.openssh.transport import ALIVE_CACHE_S, OpenSshTransport

if TYPE_CHECKING:
    from pathlib import Path


PAST = ("-V", "20200101:20200102")
ANYBODY = ("-n", "root,nobody")


@pytest.fixture
def authority(site: SshSite) -> Path:
    """A certificate authority, which sshds of the site may trust for users."""
    file = site.folder / "authority"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


def user_certificate(site: SshSite, authority: Path, *words: str) -> Path:
    """Sign the key of a stranger, as whom nobody else may log in. Return the certificate."""
    public_key = site.folder / "stranger.pub"
    shutil.copy(site.keys.stranger.with_suffix(".pub"), public_key)
    certify(authority, public_key, "-n", me(), *words)
    return site.folder / "stranger-cert.pub"


def me() -> str:
    import getpass

    return getpass.getuser()


def with_certificate(site: SshSite, certificate: Path) -> dict[str, str]:
    return {"IdentityFile": str(site.keys.stranger), "CertificateFile": str(certificate)}


def test_a_user_certificate(site, authority):
    site.sshd(f"TrustedUserCAKeys {authority}.pub")
    site.entry |= with_certificate(site, user_certificate(site, authority))
    site.make_project()
    assert site.reason().startswith("CertificateFile ")
    site.works()


@pytest.mark.slow
def test_a_new_user_with_a_certificate_from_init_to_collect(site, authority):
    site.sshd(f"TrustedUserCAKeys {authority}.pub", with_tensorflow())
    site.entry |= with_certificate(site, user_certificate(site, authority))
    site.make_project()
    (site.project.folder / "hosts.toml").unlink()
    site.project.ok("init", "--ssh-config", str(site.config), HOST)
    site.runs_what_init_wrote()


def test_an_expired_user_certificate_is_named(site, authority):
    site.sshd(f"TrustedUserCAKeys {authority}.pub")
    certificate = user_certificate(site, authority, *PAST)
    site.entry |= with_certificate(site, certificate)
    site.make_project()
    assert f"{HOST}: the certificate {certificate} expired at 2020-01-02T" in site.error()


def test_a_host_certificate(site, authority):
    host_certificate(site, authority)
    site.known_lines = [f"@cert-authority * {public(authority)}"]
    site.make_project()
    assert site.reason() == "a certificate authority for it in known_hosts"
    site.works()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "known", "message"),
    [
        (PAST, "@cert-authority * {authority}", "its host certificate is invalid: expired"),
        ((), "@cert-authority * {authority}@revoked * {authority}", "is revoked in known_hosts"),
        ((), "@cert-authority * {authority}@revoked * {host}", "is revoked in known_hosts"),
        ((), "@cert-authority * {other}", "its host key is unknown"),
    ],
    ids=["expired", "revoked authority", "revoked key", "another authority"],
)
def test_a_host_certificate_that_ssh_refuses(site, authority, words, known, message):
    host_certificate(site, authority, *words)
    names = {"authority": authority, "host": site.keys.host, "other": site.keys.other_host}
    site.known_lines = [known.format(**{name: public(key) for name, key in names.items()})]
    site.make_project()
    assert f"{HOST}: " in (error := site.error())
    assert message in error


def host_certificate(site: SshSite, authority: Path, *words: str) -> None:
    """Start an sshd that has a certificate for its key."""
    public_key = site.folder / "host.pub"
    shutil.copy(site.keys.host.with_suffix(".pub"), public_key)
    certify(authority, public_key, "-h", *words)
    site.sshd(f"HostCertificate {site.folder}/host-cert.pub")


@pytest.mark.slow
def test_an_identity_agent(site):
    site.sshd()
    site.entry |= {"IdentityAgent": str(site.agent(site.keys.user))}
    site.entry |= {"IdentityFile": str(site.keys.user.with_suffix(".pub"))}
    site.make_project()
    assert site.reason().startswith("IdentityAgent ")
    site.works()


@pytest.mark.slow
def test_an_agent_that_wants_a_confirmation(site):
    answer = site.folder / "confirm"
    answer.write_text(f"#!/bin/sh\necho asked >> {site.folder}/asked\n")
    answer.chmod(0o755)
    site.sshd()
    agent = site.agent(site.keys.user, askpass=str(answer), add=("-c",))
    site.entry |= {"IdentityAgent": str(agent)}
    site.entry |= {"IdentityFile": str(site.keys.user.with_suffix(".pub"))}
    site.make_project()
    site.works()
    assert (site.folder / "asked").read_text() == "asked\n"  # once for all commands


def test_a_master_of_the_users_own(site):
    """It is the only way in: nothing that the configuration names opens the host."""
    site.sshd()
    site.entry |= {"IdentityFile": str(site.keys.stranger), "ControlPath": f"{site.folder}/%p"}
    site.make_project()
    site.ssh("-i", str(site.keys.user), "-o", "ControlMaster=yes", "-fN", HOST)
    assert site.reason() == "an open master at its ControlPath"
    site.works()
    site.ssh("-O", "exit", HOST)
    assert "it refused every key that was offered" in site.error()


@pytest.mark.slow
def test_a_certificate_at_the_jump_host(site, authority):
    site.sshd()
    site.jump("bastion", f"TrustedUserCAKeys {authority}.pub")
    site.jumps["bastion"] |= with_certificate(site, user_certificate(site, authority))
    site.entry["ProxyJump"] = "bastion"
    site.make_project()
    assert site.reason().startswith("for the jump host bastion, CertificateFile ")
    site.works()


@pytest.mark.slow
def test_a_jump_host_behind_another(site):
    site.sshd()
    site.jump("gateway")
    site.jump("bastion")["ProxyJump"] = "gateway"
    site.entry["ProxyJump"] = "bastion"
    site.make_project()
    assert site.reason() == "for the jump host bastion, its own ProxyJump"
    site.works()


@pytest.mark.slow
def test_a_proxy_command_and_a_certificate(site, authority):
    site.sshd(f"TrustedUserCAKeys {authority}.pub")
    site.jump("bastion")
    site.entry |= with_certificate(site, user_certificate(site, authority))
    site.entry["ProxyCommand"] = f"ssh -F {site.config} -W %h:%p bastion"
    site.make_project()
    site.works()


def test_exec_uses_the_master(site):
    """A second login is not possible: the key is gone."""
    site.sshd()
    key = site.folder / "key"
    shutil.copy(site.keys.user, key)
    site.entry["IdentityFile"] = str(key)
    project = site.make_project(transport="openssh", workers=1)
    project.ok("push")
    project.ok("start")
    key.unlink()
    assert project.ok("exec", "worker:0", "--", "echo", "here") == "here\n"
    project.ok("stop")


@pytest.mark.slow
def test_one_session_for_each_connection(site):
    site.sshd("MaxSessions 1")
    site.make_project(transport="openssh")
    assert site.reason() == 'transport = "openssh" in hosts.toml'
    site.works()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_a_forced_command_that_passes_the_original_one_on(site, transport):
    site.sshd('ForceCommand sh -c "$SSH_ORIGINAL_COMMAND"')
    site.make_project(transport=transport)
    site.works()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_an_ipv6_address_and_a_known_hosts_file_of_another_name(site, transport):
    sshd = site.sshd("ListenAddress ::1", is_known=False)
    site.entry |= {"HostName": "::1", "UserKnownHostsFile": f"{site.folder}/machines"}
    (site.folder / "machines").write_text(f"[::1]:{sshd.port} {public(site.keys.host)}")
    site.make_project(transport=transport)
    site.works()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_a_banner_and_a_slow_login(site, transport):
    (site.folder / "banner").write_text("Authorized use only.\n" * 20)
    site.sshd(f"Banner {site.folder}/banner", 'ForceCommand sleep 1; eval "$SSH_ORIGINAL_COMMAND"')
    site.make_project(transport=transport)
    site.works()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_settings_below_match_exec(site, transport):
    site.sshd()
    site.make_project(transport=transport)
    port = site.entry.pop("Port")
    site.write()
    text = site.config.read_text()
    site.config.write_text(f'Match originalhost {HOST} exec "true"\n  Port {port}\n{text}')
    site.project.write()  # trusts it
    site.works()


@pytest.mark.slow
def test_ciphers_that_only_openssh_has(site):
    site.sshd("Ciphers chacha20-poly1305@openssh.com")
    site.entry["Ciphers"] = "chacha20-poly1305@openssh.com"
    site.make_project()
    assert site.reason() == "ciphers in ssh's configuration has none of Paramiko's"
    site.works()


def test_a_host_that_refuses_fabric_is_tried_with_ssh_and_a_note_says_so_once(site):
    site.sshd("Ciphers chacha20-poly1305@openssh.com")
    site.make_project()
    assert site.reason() == ""
    first, second = (site.project.tf("push") for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert f"note: {HOST}: OpenSSH connects to it; with Fabric, " in first.stderr
    assert "OpenSSH" not in second.stderr
    assert site.reason() == "it refused Fabric's login, and ssh's succeeded"
    site.works()


@pytest.mark.slow
def test_only_old_algorithms(site):
    old = {"KexAlgorithms": "diffie-hellman-group14-sha1", "Ciphers": "aes128-ctr"}
    site.sshd(*(f"{key} {value}" for key, value in old.items()))
    site.entry |= old
    site.make_project()
    assert site.reason() == "kexalgorithms in ssh's configuration has none of Paramiko's"
    site.works()


@pytest.mark.slow
def test_new_host_keys_that_the_users_configuration_accepts(site):
    site.sshd(is_known=False)
    site.entry["StrictHostKeyChecking"] = "accept-new"
    site.make_project()
    assert site.reason().startswith("StrictHostKeyChecking ")
    site.works()
    assert site.known_hosts.read_text()


@pytest.mark.slow
def test_an_unreachable_host_is_one_sentence(site):
    site.sshd().stop()
    site.make_project(transport="openssh")
    assert f"{HOST}: no SSH connection: 127.0.0.1 port " in (error := site.error())
    assert "Connection refused" in error


def test_a_refusing_host_names_the_command_that_asks_on_a_terminal(site):
    site.sshd()
    site.entry["IdentityFile"] = str(site.keys.stranger)
    site.make_project(transport="openssh")
    error = site.error()
    assert f"{HOST}: it refused every key that was offered" in error
    assert "open the connection on a terminal: ssh -F " in error


@pytest.mark.slow
def test_a_connection_that_is_lost_is_opened_again_by_the_next_command(site):
    sshd = site.sshd()
    site.make_project(transport="openssh")
    site.works()
    sshd.drop_connections()
    until(lambda: not sshd.connections, "the end of the connections")
    site.works()


def master_pid(socket_path: Path) -> int:
    """Return the process that listens on a master's socket."""
    check = ["ssh", "-S", socket_path, "-O", "check", "any"]
    text = subprocess.run(check, capture_output=True, text=True, timeout=60).stderr
    return int(text.partition("pid=")[2].partition(")")[0])


def test_a_master_that_was_killed_is_replaced(site):
    """Its socket stays: ssh would connect without a master, in the background, and never end."""
    sshd = site.sshd()
    site.make_project(transport="openssh")
    of_others = {*socket_folder().glob("*.ssh")}
    site.project.ok("push")
    (path,) = {*socket_folder().glob("*.ssh")} - of_others
    os.kill(master_pid(path), signal.SIGKILL)
    until(lambda: not sshd.connections, "the end of the connection")
    site.project.ok("push")
    assert master_pid(path)


def test_the_end_of_a_transport_ends_all_of_its_commands(site):
    site.sshd()
    inventory = inventories.load(site.make_project().folder / "hosts.toml")
    transport = OpenSshTransport(inventory.host(HOST), inventory)
    commands = [transport.stream(["sleep", "600"]) for _ in range(2)]
    transport.close()
    assert [each.has_exited for each in commands] == [True, True]


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """The socket of a process that listens and never answers."""
    monkeypatch.setattr(master, "ANSWER_TIMEOUT_S", 0.5)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(tmp_path / "hanging"))
        listener.listen(0)
        yield tmp_path / "hanging"


def test_a_master_of_the_users_own_that_hangs_is_not_used(site, hanging):
    site.sshd()
    site.entry["ControlPath"] = str(hanging)
    inventory = inventories.load(site.make_project().folder / "hosts.toml")
    assert choice.why_openssh(inventory.host(HOST), inventory) == ""


def test_a_master_that_hangs_loses_its_socket(hanging):
    while master.is_listening(hanging):  # until no more connections can wait
        pass
    master.end("any", hanging)
    assert not hanging.exists()


def test_fabric_needs_no_folder_for_the_sockets_of_masters(site, monkeypatch):
    folder = site.folder / ("long" * 25)
    folder.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    site.sshd()
    project = site.make_project()
    project.ok("push")
    project.hosts[HOST]["transport"] = "openssh"
    project.write()
    assert "the folder for ssh's sockets has too long a path" in site.error()


@pytest.mark.slow
@pytest.mark.parametrize("own", [{"RemoteCommand": "false"}, {"LocalForward": "{port} [::1]:9"}])
def test_what_a_configuration_adds_to_sessions_is_left_out(site, own):
    site.sshd()
    port = free_port()
    site.entry |= {key: value.format(port=port) for key, value in own.items()}
    site.make_project(transport="openssh")
    site.works()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.slow
def test_a_master_without_a_connection_is_replaced(site):
    """As after a laptop's sleep: the master still runs, and its host does not answer."""
    sshd = site.sshd()
    site.make_project(transport="openssh")
    site.works()
    sshd.freeze_connections()
    frozen = time.monotonic()
    until(lambda: time.monotonic() - frozen > ALIVE_CACHE_S, "the end of what was known")
    site.project.ok("push")
    site.works()
