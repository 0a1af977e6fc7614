"""Errors of SSH, caused by a real sshd: each is one message with the host's name."""

from __future__ import annotations

import inspect
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import paramiko
import pytest
from support import sshd as sshd_module
from support.command_line import error_of
from support.ports import ADDRESS, free_ports
from support.projects import Project, toml
from support.sshd import CONFIG, Keys, Sshd, public, write_ssh_config
from support.waiting import until

from tfdeploy.config import inventory
from tfdeploy.errors import (
    AuthenticationFailed,
    CommandFailed,
    HostError,
    HostKeyRefused,
    TransferFailed,
    Unreachable,
)
from tfdeploy.hosts import agent_client, login_shell
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.protocol.releases import FindRelease
from tfdeploy.shared.protocol.reports import Follow
from tfdeploy.transport.openssh.transport import OpenSshTransport
from tfdeploy.transport.ssh import channels, connection
from tfdeploy.transport.ssh.errors import translate
from tfdeploy.transport.ssh.transport import SshTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RELAY = """\
import os, socket, sys, threading
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := peer.recv(65536):
    os.write(1, data)
"""
NOISE = r"""ForceCommand {}; eval "$SSH_ORIGINAL_COMMAND" """


class Site:
    """The ssh_config, known_hosts and hosts.toml of one test."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys = folder, keys
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("")
        self.entries: dict[str, dict[str, str]] = {}
        self.opened: list[SshTransport] = []

    def add_host(self, name: str, sshd: Sshd, **more: str) -> None:
        """Add `name` to ssh_config, and its host key to known_hosts."""
        self.entries[name] = sshd.entry(**more)
        self.known_hosts.write_text(self.known_hosts.read_text() + sshd.known_hosts_line)

    @property
    def ssh_config(self) -> Path:
        file = self.folder / "ssh_config"
        write_ssh_config(file, self.keys, self.known_hosts, self.entries)
        return file

    def inventory(self, **hosts: dict[str, Any]) -> inventory.Inventory:
        top = {"project": "p", "ssh_config": self.ssh_config.name}
        text = toml({**top, "training": {"command": "true"}, "hosts": hosts})
        return inventory.parse(text, self.folder / "hosts.toml")

    def transport(self, name: str = "one", *, accept_new: bool = False, **settings: Any):
        inventory = self.inventory(**{name: settings})
        host = inventory.host(name)
        self.opened.append(SshTransport(host, inventory, accept_new=accept_new))
        return self.opened[-1]

    def echo(self, name: str = "one", **settings: Any) -> bytes:
        return self.transport(name, **settings).run(["echo", "on"], timeout_s=600).stdout


@pytest.fixture
def site(tmp_path: Path, keys: Keys) -> Iterator[Site]:
    test_site = Site(tmp_path, keys)
    yield test_site
    for transport in test_site.opened:
        transport.close()


@pytest.fixture
def sshd(tmp_path: Path, keys: Keys) -> Iterator[Callable[..., Sshd]]:
    """Return a function that starts an sshd with these lines of configuration."""
    running: list[Sshd] = []

    def start(*lines: str) -> Sshd:
        running.append(Sshd(tmp_path, keys, *lines))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def one(sshds: dict[str, Sshd]) -> Sshd:
    return sshds["one"]


# Host keys


def test_an_unknown_host_key_is_refused(site, one):
    site.entries["one"] = one.entry()
    with pytest.raises(
        HostKeyRefused, match=r"one: its host key is unknown: .*ssh-ed25519"
    ) as refused:
        site.echo()
    assert "--accept-new-host-keys" in refused.value.hint
    assert site.known_hosts.read_text() == ""


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_host_key_is_refused_even_with_accept_new(site, one, keys, accept_new):
    site.entries["one"] = one.entry()
    site.known_hosts.write_text(f"[{ADDRESS}]:{one.port} {public(keys.other_host)}")
    with pytest.raises(HostKeyRefused, match=r"one: its host key is not the one") as refused:
        site.echo(accept_new=accept_new)
    assert f"ssh-keygen -R '[{ADDRESS}]:{one.port}'" in refused.value.hint


def test_an_accepted_host_key_is_added_to_known_hosts(site, one, tmp_path):
    site.entries["one"] = one.entry()
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    accepting = site.transport(accept_new=True)
    assert accepting.run(["true"], timeout_s=600).exit == 0
    accepting.push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert site.known_hosts.read_text().split() == one.known_hosts_line.split()[:3]
    assert site.echo() == b"on\n"


def test_accepting_a_key_keeps_the_other_lines_of_known_hosts(site, one, keys):
    """Even if its last line has no newline."""
    site.entries["one"] = one.entry()
    other = f"other.example {public(keys.other_host)}".strip()
    site.known_hosts.write_text(other)
    site.echo(accept_new=True)
    assert [line.split()[0] for line in site.known_hosts.read_text().splitlines()] == [
        "other.example",
        f"[{ADDRESS}]:{one.port}",
    ]
    assert site.echo() == b"on\n"


def test_no_key_is_added_through_a_link(site, one, tmp_path):
    site.entries["one"] = one.entry()
    program = tmp_path / "profile"
    program.write_text("true\n")
    site.known_hosts.unlink()
    site.known_hosts.symlink_to(program)
    with pytest.raises(HostKeyRefused) as refused:
        site.echo(accept_new=True)
    assert f"its new host key can't be added to {site.known_hosts}: it is a link" in str(
        refused.value
    )
    assert program.read_text() == "true\n"


def test_a_key_is_added_through_the_users_own_link(site, one, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "dotfiles").write_text("")
    site.known_hosts = tmp_path / ".ssh/known_hosts"
    site.known_hosts.symlink_to(tmp_path / "dotfiles")
    site.entries["one"] = one.entry()
    site.echo(accept_new=True)
    assert (tmp_path / "dotfiles").read_text().split() == one.known_hosts_line.split()[:3]


def test_many_new_hosts_at_once_add_one_line_each(site, sshds):
    for name, sshd in sshds.items():
        site.entries[name] = sshd.entry()
    transports = [site.transport(name, accept_new=True) for name in sshds]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.run(["true"], timeout_s=600), transports))
    lines = [line.split()[0] for line in site.known_hosts.read_text().splitlines()]
    assert sorted(lines) == sorted(f"[{ADDRESS}]:{sshd.port}" for sshd in sshds.values())


def test_new_host_keys_are_accepted_only_with_the_option(site, one, tmp_path):
    site.entries["one"] = one.entry()
    top = {"ssh_config": str(site.ssh_config)}
    project = Project(tmp_path / "project", {"one": host_settings(site)}, top)
    refused = project.tf("push")
    assert refused.returncode == 1
    assert "--accept-new-host-keys" in refused.stderr
    project.ok("push", "--accept-new-host-keys")
    assert len(site.known_hosts.read_text().splitlines()) == 1
    assert len(project.releases("one")) == 1


def test_an_unreadable_line_of_known_hosts_affects_no_other_host(site, one, keys):
    site.entries["one"] = one.entry()
    broken = "other.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAA%\nhalf.example ssh-rsa\n"
    unusual = "@unheard-of x ssh-rsa AAAA\n\xff\xfe\n\n# comment\n"
    site.known_hosts.write_text(broken + unusual + one.known_hosts_line)
    assert site.echo() == b"on\n"
    site.known_hosts.write_text(broken)
    with pytest.raises(HostKeyRefused, match=rf"not readable: {site.known_hosts} line 1, "):
        site.echo()


def test_a_certificate_authority_in_known_hosts_is_skipped(site, one, keys):
    site.entries["one"] = one.entry()
    authority = f"@cert-authority * {public(keys.other_host)}"
    site.known_hosts.write_text(authority + one.known_hosts_line)
    assert site.echo() == b"on\n"
    site.known_hosts.write_text(authority)
    with pytest.raises(HostKeyRefused, match=r"Fabric does not support host certificates"):
        site.echo()


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_revoked_host_key_is_refused_even_if_it_is_known(site, one, keys, accept_new):
    site.entries["one"] = one.entry()
    site.known_hosts.write_text(f"{one.known_hosts_line}@revoked * {public(keys.host)}")
    with pytest.raises(HostKeyRefused, match=r"one: its host key is revoked in known_hosts"):
        site.echo(accept_new=accept_new)
    site.known_hosts.write_text(f"{one.known_hosts_line}@revoked * {public(keys.other_host)}")
    assert site.echo() == b"on\n"


def test_patterns_and_several_keys_of_one_type_match_as_in_ssh(site, one, keys):
    site.entries["one"] = one.entry()
    site.known_hosts.write_text(f"[127.0.*]:* {public(keys.other_host)}{one.known_hosts_line}")
    assert site.echo() == b"on\n"


# Keys


def test_a_refused_key_is_reported(site, one, keys):
    site.add_host("one", one, IdentityFile=str(keys.stranger))
    with pytest.raises(AuthenticationFailed, match=r"one: it refused every key"):
        site.echo()


@pytest.mark.parametrize("reason", ["unknown host key", "refused key"])
def test_a_refused_connection_is_not_left_open(site, sshd, keys, reason):
    server = sshd()
    site.add_host("one", server, IdentityFile=str(keys.stranger))
    if reason == "unknown host key":
        site.known_hosts.write_text("")
    with pytest.raises(HostError):
        site.echo()
    until(lambda: not server.connections, "the end of the connection")


def test_a_missing_key_is_an_authentication_error(site, one, tmp_path):
    site.add_host("one", one, IdentityFile="none")
    with pytest.raises(AuthenticationFailed, match=r"one: there is no key to offer"):
        site.echo()


@pytest.mark.parametrize("offered", ["none", "stranger"])
def test_a_missing_key_of_ssh_config_is_named_if_no_other_is_accepted(site, one, keys, offered):
    site.add_host("one", one, IdentityFile=f"{keys.user.parent}/absent")
    if offered != "none":
        site.entries["one"]["CertificateFile"] = "none"
        site.entries["one"]["IdentityFile"] += f"\n  IdentityFile {keys.stranger}"
    with pytest.raises(AuthenticationFailed) as refused:
        site.echo()
    assert str(refused.value) == (
        f"one: it accepted no key, and these IdentityFiles do not exist: {keys.user.parent}/absent"
        "\n  correct IdentityFile in ssh_config, or set identity_file in hosts.toml"
    )


def test_a_missing_identity_file_is_named_before_a_connection(site):
    site.entries["one"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    with pytest.raises(AuthenticationFailed) as refused:
        site.echo(identity_file="keys/absent")
    assert str(refused.value) == (
        'one: identity_file = "keys/absent" in hosts.toml is not a file on the controller\n'
        "  correct identity_file of the host or of [defaults]"
    )


def test_the_hint_for_a_locked_key_is_ssh_add(site, one, tmp_path):
    site.add_host("one", one, IdentityFile="none")
    locked = Keys(tmp_path / "keys").create("locked", "a passphrase")
    with pytest.raises(AuthenticationFailed, match=r"passphrase") as refused:
        site.echo(identity_file=str(locked))
    assert "ssh-add" in refused.value.hint


def test_a_broken_key_is_an_error_of_the_host(site, one, tmp_path):
    site.add_host("one", one, IdentityFile="none")
    (tmp_path / "broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nno\n")
    with pytest.raises(HostError, match=r"one: "):
        site.echo(identity_file=str(tmp_path / "broken"))


def test_hosts_toml_alone_can_configure_the_connection(site, one, keys):
    site.known_hosts.write_text(one.known_hosts_line)
    own = {"hostname": ADDRESS, "port": one.port, "identity_file": str(keys.user)}
    assert site.echo("another", **own) == b"on\n"


# Connections


def test_a_closed_port_is_unreachable(site):
    site.entries["one"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    with pytest.raises(Unreachable, match=r"one: no SSH connection: .*refused"):
        site.echo()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "typo..example", "x" * 64 + ".example"])
def test_an_unknown_name_is_unreachable(site, name):
    with pytest.raises(Unreachable, match=r"one: its name"):
        site.entries["one"] = {"HostName": name}
        site.echo()


def test_commands_and_transfers_go_through_a_jump_host(site, sshds, tmp_path):
    site.add_host("jump", sshds["two"])
    site.add_host("one", sshds["one"])
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    transport = site.transport(proxy_jump="jump")
    assert (
        b" " + str(sshds["one"].port).encode()
        in transport.run(["sh", "-c", "echo $SSH_CONNECTION"], timeout_s=600).stdout
    )
    transport.push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert (tmp_path / "dest/file").read_text() == "x"


def test_a_chain_of_jumps_in_ssh_config_is_followed(site, sshds):
    site.add_host("first", sshds["two"])
    site.add_host("second", sshds["three"])
    site.add_host("one", sshds["one"], ProxyJump="first,second")
    assert site.echo() == b"on\n"


def test_a_proxy_command_is_used(site, one, tmp_path):
    (tmp_path / "relay.py").write_text(RELAY)
    site.add_host("one", one, ProxyCommand=f"{sys.executable} {tmp_path}/relay.py %h %p")
    assert site.echo() == b"on\n"


PROXIES = {
    r"printf 'proxy 2.0\n\033[1mno token\n' >&2; exit 7": r"proxy 2.0; \x1b[1mno token",
    "printf 'no end of line' >&2; sleep 1; exit 1": "no end of line",
    "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1": f"{'x' * 160}…",
}


@pytest.mark.parametrize("kind", [SshTransport, OpenSshTransport])
@pytest.mark.parametrize("script", PROXIES)
def test_what_a_proxy_command_prints_is_shown(site, one, monkeypatch, kind, script):
    monkeypatch.setattr("random.uniform", lambda *_: 0.0)
    (site.folder / "proxy.sh").write_text(script)
    site.add_host("one", one, ProxyCommand=f"sh {site.folder}/proxy.sh")
    loaded = site.inventory(one={})
    with closing(kind(loaded.host("one"), loaded)) as transport, pytest.raises(Unreachable) as lost:
        transport.run(["true"], timeout_s=600)
    assert lost.value.message == f"no SSH connection through ProxyCommand: {PROXIES[script]}"
    assert lost.value.hint == "try: ssh one"


def test_a_silent_proxy_command_is_named_by_its_exit_code(site, one):
    site.add_host("one", one, ProxyCommand="sh -c 'exit 7'")
    with pytest.raises(Unreachable, match="one: no SSH connection through ProxyCommand: it exited"):
        site.echo()


def test_a_proxy_command_that_prints_much_is_read_and_ends_with_its_connection(site, one, tmp_path):
    (tmp_path / "relay.py").write_text("import sys; sys.stderr.write('x' * 500_000)\n" + RELAY)
    command = f"{sys.executable} {tmp_path}/relay.py"
    site.add_host("one", one, ProxyCommand=f"{command} %h %p")
    assert site.echo() == b"on\n"
    site.opened.pop().close()
    assert (
        command
        not in subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True).stdout
    )


def test_a_jump_host_that_allows_no_connection_through_it_is_named(site, one, sshd):
    site.add_host("jump", sshd("AllowTcpForwarding no"))
    site.add_host("one", one)
    with pytest.raises(Unreachable, match="one: the jump host allows no connection through it"):
        site.echo(proxy_jump="jump")


def test_a_dead_jump_host_is_named(site, one):
    site.entries["jump"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    site.add_host("one", one)
    with pytest.raises(Unreachable, match=r"(?s)one: .*jump"):
        site.echo(proxy_jump="jump")


def test_a_jump_host_that_refuses_the_key_is_named(site, one, sshds, keys):
    site.add_host("jump", sshds["two"], IdentityFile=str(keys.stranger))
    site.add_host("one", one)
    with pytest.raises(AuthenticationFailed, match=r"(?s)one: .*jump"):
        site.echo(proxy_jump="jump")


def test_an_unknown_jump_host_is_refused_and_named(site, one, sshds):
    site.entries["jump"] = sshds["two"].entry()
    site.add_host("one", one)
    with pytest.raises(HostKeyRefused, match=r"(?s)one: .*jump|:" + str(sshds["two"].port)):
        site.echo(proxy_jump="jump")


def test_a_host_that_its_jump_host_can_not_reach_is_reported(site, sshds):
    site.add_host("jump", sshds["two"])
    site.entries["one"] = sshds["one"].entry(Port=str(free_ports(1)[0]))
    with pytest.raises(Unreachable, match="one: the jump host can't connect to it"):
        site.echo(proxy_jump="jump")


def test_an_sshd_without_sessions_is_not_blamed_on_a_jump_host(site, sshd):
    site.add_host("one", sshd("MaxSessions 0"))
    with pytest.raises(Unreachable, match="one: the SSH connection failed"):
        site.echo()


def test_commands_that_are_refused_sessions_at_the_same_time_wait_or_connect_again(site, sshd):
    """Paramiko keeps one error for all threads: of two refusals at once, one had no reason."""
    site.add_host("one", sshd("MaxSessions 1"))
    transport, count = site.transport(), 32
    with ThreadPoolExecutor(count) as pool:
        results = [*pool.map(lambda _: transport.run(["echo"], timeout_s=600).stdout, range(count))]
    assert results == [b"\n"] * count


def test_a_lost_connection_is_no_timeout_and_the_next_command_reconnects(site, sshd):
    server = sshd()
    site.add_host("one", server)
    transport = site.transport()
    started = site.folder / "started"

    def drop_connections() -> None:
        until(started.exists, "the start of the command")
        server.drop_connections()

    with ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(drop_connections)
        with pytest.raises(Unreachable, match=r"one: "):
            transport.run(["sh", "-c", f"touch {started}; exec sleep 600"], timeout_s=600)
        dropped.result()
    assert transport.run(["echo", "on"], timeout_s=600).stdout == b"on\n"


def test_a_stream_reports_that_its_connection_was_lost(site, sshd):
    server = sshd()
    site.add_host("one", server)
    stream = site.transport().stream(["sh", "-c", "echo on; exec cat"])
    assert stream.read(30) == b"on\n"
    server.drop_connections()
    with pytest.raises(Unreachable, match=r"one: the connection was lost"):
        stream.read(30)


def test_endless_output_is_refused_before_it_fills_the_memory(site, sshds, monkeypatch):
    monkeypatch.setattr(channels, "MAX_OUTPUT", 1_000_000)
    site.add_host("one", sshds["one"])
    with pytest.raises(CommandFailed, match="it prints without end: y; y"):
        site.transport().run(["yes"], timeout_s=600)


def accepted_connection(server: Sshd) -> socket.socket | None:
    """Return a connection that does not log in, or None if sshd drops it."""
    opened = socket.create_connection((ADDRESS, server.port))
    if opened.recv(99).startswith(b"SSH-2.0"):
        return opened
    opened.close()
    return None


@pytest.fixture
def busy_sshd(sshd, monkeypatch) -> Iterator[Sshd]:
    """An sshd that accepts no other connection until it has dropped the first one."""
    # Of several lines with MaxStartups, the last one counts in some versions of sshd.
    monkeypatch.setattr(sshd_module, "CONFIG", CONFIG.replace("MaxStartups 100", "MaxStartups 1"))
    server, dropped = sshd(), []

    def pause_s(*_: float) -> float:
        """Make room before the next attempt, instead of a random pause."""
        dropped.append(True)
        only.close()
        until(lambda: not server.connections, "the end of the only connection")
        return 0.0

    monkeypatch.setattr("random.uniform", pause_s)
    # At first the connection that found it listening may still be open.
    with until(lambda: accepted_connection(server), "the only connection") as only:
        yield server
    assert dropped


def test_a_connection_that_sshd_drops_under_load_is_retried(site, busy_sshd):
    site.add_host("one", busy_sshd)
    assert site.echo() == b"on\n"


@pytest.mark.parametrize("busy", ["one", "gate"])
def test_a_connection_that_is_dropped_behind_a_proxy_command_is_retried(site, one, busy_sshd, busy):
    for name in ("one", "gate"):
        site.add_host(name, busy_sshd if name == busy else one)
    proxy = f"echo 'a harmless line' >&2; exec ssh -F {site.ssh_config} -W $1:$2 gate"
    (site.folder / "proxy.sh").write_text(proxy)
    site.entries["one"]["ProxyCommand"] = f"sh {site.folder}/proxy.sh %h %p"
    assert site.echo() == b"on\n"


def test_a_proxy_command_that_prints_does_not_hide_that_the_host_gave_no_answer(site, monkeypatch):
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 1)
    (site.folder / "proxy.sh").write_text("echo 'touch the key' >&2; exec cat > /dev/null")
    site.entries["one"] = {"HostName": ADDRESS, "ProxyCommand": f"sh {site.folder}/proxy.sh"}
    with pytest.raises(Unreachable) as lost:
        site.echo()
    assert lost.value.message == (
        "no SSH connection through ProxyCommand: no answer within 1 s; touch the key"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "output"), [(b"SSH-2.0-busy\r\n", b"on\n"), (b"", None)])
def test_a_slow_handshake_is_retried_but_a_silent_host_is_not(
    site, one, monkeypatch, answer, output
):
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 1)
    with slow_once(one, answer) as port:
        site.entries["one"] = one.entry(Port=str(port))
        site.known_hosts.write_text(f"[{ADDRESS}]:{port} {public(one.keys.host)}\n")
        if output:
            assert site.echo() == output
        else:
            with pytest.raises(Unreachable, match="one: no SSH answer within 1 s"):
                site.echo()


@contextmanager
def slow_once(sshd: Sshd, answer: bytes) -> Iterator[int]:
    """Yield a port that forwards to sshd; its first client gets only `answer`."""
    with socket.create_server((ADDRESS, 0)) as front:

        def serve() -> None:
            first, _ = front.accept()
            first.sendall(answer)
            with suppress(OSError):
                while True:
                    client, _ = front.accept()
                    server = socket.create_connection((ADDRESS, sshd.port))
                    for ends in ((client, server), (server, client)):
                        threading.Thread(target=forward, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield front.getsockname()[1]
        front.shutdown(socket.SHUT_RDWR)


def forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_a_transfer_that_sshd_drops_under_load_is_retried(site, busy_sshd, tmp_path):
    site.add_host("one", busy_sshd)
    (tmp_path / "file").write_text("x" * 100)
    (tmp_path / "dest").mkdir()
    site.transport().push(tmp_path, f"{tmp_path}/dest", ["file"])
    assert (tmp_path / "dest/file").read_text() == "x" * 100


# Programs on the host


def host_settings(site: Site, **settings: Any) -> dict[str, Any]:
    own = {"workers": 1, "directory": str(site.folder / "host"), "python": sys.executable}
    return {**own, "ports": free_ports(2), **settings}


def ask(site: Site, **settings: Any) -> Any:
    with Fleet(site.inventory(one=host_settings(site, **settings))) as fleet:
        return fleet.agents["one"].ask(FindRelease("p", "r"))


def test_a_missing_python_is_named_with_the_key_to_set(site, one):
    site.add_host("one", one)
    with pytest.raises(CommandFailed, match=r"one: can't run python9: not found\n") as refused:
        ask(site, python="python9")
    assert "python in hosts.toml" in refused.value.hint


def test_a_directory_that_can_not_be_written_is_named(site, one, tmp_path):
    site.add_host("one", one)
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match=r"one: can't write .*/file/.*: ") as refused:
        ask(site, directory=str(tmp_path / "file"))
    assert "directory" in refused.value.hint


@pytest.mark.parametrize("noise", ["echo hello", "printf 'no end: '", "echo hello >&2"])
def test_a_shell_profile_that_prints_text_changes_no_answer(site, sshd, noise):
    site.add_host("one", sshd(NOISE.format(noise)))
    assert ask(site).present is False
    request = Follow("p", "r", [], logs=True, lines=None, forever=True)
    with Fleet(site.inventory(one=host_settings(site))) as fleet:
        assert list(fleet.agents["one"].stream(request)) == []


NOLOGIN = "This account is currently not available."
RUNS_NOTHING = "one: its login shell runs no command: {}\n"
START_FILES = {
    f"echo {NOLOGIN}; exit 1": RUNS_NOTHING.format(f"it exits with 1: {NOLOGIN}"),
    "exit": RUNS_NOTHING.format("it exits with 0: it printed nothing"),
    r"printf 'no \033[1mlicence\n' >&2; exit 3": RUNS_NOTHING.format(
        r"it exits with 3: no \x1b[1mlicence"
    ),
    "exec sh": "one: a start file of its login shell replaces it by another shell\n",
    "exec cat": RUNS_NOTHING.format("it exits with 0: it printed nothing"),
    "exec yes": RUNS_NOTHING.format("it prints without end: y; y"),
    "read answer": "one: a start file of its login shell reads the input of tfdeploy's commands\n",
    "cat >/dev/null": "one: a start file of its login shell reads the input of tfdeploy's",
}


@pytest.mark.parametrize("start_file", START_FILES)
def test_a_login_shell_that_runs_no_command_is_named(site, sshd, monkeypatch, start_file):
    monkeypatch.setattr(agent_client, "CHECK_AFTER_S", 0.5)
    site.add_host("one", sshd(NOISE.format(start_file)))
    with pytest.raises(CommandFailed) as failed:
        ask(site)
    assert str(failed.value).startswith(START_FILES[start_file])
    assert failed.value.hint.startswith("try: ssh one true; then correct its start file: ")


@pytest.mark.slow
def test_a_login_shell_that_prints_errors_without_end_is_named(site, sshd):
    site.add_host("one", sshd(NOISE.format("yes >&2")))
    with pytest.raises(CommandFailed, match="runs no command: it prints without end: y; y\n"):
        ask(site)


def test_a_login_shell_that_is_only_slow_is_waited_for(site, sshd, monkeypatch):
    monkeypatch.setattr(agent_client, "CHECK_AFTER_S", 0.1)
    monkeypatch.setattr(login_shell, "CHECK_S", 0.1)
    site.add_host("one", sshd(NOISE.format("sleep 0.5")))
    assert ask(site).present is False


def test_a_shell_profile_that_prints_text_is_named_when_rsync_fails(site, sshd, tmp_path):
    site.add_host("one", sshd(NOISE.format("echo hello")))
    (tmp_path / "file").write_text("x")
    with pytest.raises(TransferFailed, match=r"is your shell clean"):
        site.transport().push(tmp_path, str(tmp_path), ["file"])


def test_a_host_without_rsync_is_reported(site, sshd, tmp_path):
    site.add_host("one", sshd("SetEnv PATH=/nowhere"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(TransferFailed, match=r"rsync.* not (found|installed on the host)"):
        site.transport().push(tmp_path, str(tmp_path), ["file"])


def test_a_profile_that_prints_errors_does_not_affect_a_push(site, sshd, tmp_path):
    site.add_host("one", sshd(NOISE.format("echo hello >&2")))
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    site.transport().push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert (tmp_path / "dest/file").read_text() == "x"


# All exceptions


def all_exceptions() -> list[BaseException]:
    """Return one of each exception of Paramiko and of sockets."""
    key = paramiko.PKey
    arguments = {
        "BadAuthenticationType": ("no", ["publickey"]),
        "PartialAuthentication": (["publickey"],),
        "ChannelException": (1, "no"),
        "BadHostKeyException": ("host", key(), key()),
        "ProxyCommandFailure": ("nc", "no"),
        "NoValidConnectionsError": ({(ADDRESS, 22): ConnectionRefusedError(111, "refused")},),
    }
    module = vars(paramiko.ssh_exception).values()
    kinds = [kind for kind in module if inspect.isclass(kind) and issubclass(kind, Exception)]
    system = [socket.gaierror(-2, "unknown"), TimeoutError(), ConnectionResetError(104, "reset")]
    return [*(kind(*arguments.get(kind.__name__, ("no",))) for kind in kinds), *system, EOFError()]


@pytest.mark.parametrize("error", all_exceptions(), ids=lambda error: type(error).__name__)
def test_every_exception_of_paramiko_and_sockets_is_translated(error):
    translated = translate("one", error)
    assert isinstance(translated, HostError)
    assert str(translated).startswith("one: ")
    assert translated.hint
    assert str(translated).strip()[-1] not in ":;"


def test_a_server_without_a_banner_of_ssh_is_described():
    error = paramiko.SSHException("Error reading SSH protocol banner")
    assert str(translate("one", error)).startswith(
        "one: it accepts the connection, but does not answer as an SSH server\n"
    )


def test_other_exceptions_are_not_translated():
    with pytest.raises(KeyError):
        translate("one", KeyError("defect"))


def test_each_failing_host_is_reported_and_the_others_succeed(site, sshd, sshds, keys, tmp_path):
    site.add_host("good", sshds["one"])
    site.entries["dead"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    (tmp_path / "nobody").write_text("")
    site.add_host("refusing", sshd(f"AuthorizedKeysFile {tmp_path}/nobody"))
    site.entries["changed"] = sshds["two"].entry()
    with site.known_hosts.open("a") as file:
        file.write(f"[{ADDRESS}]:{sshds['two'].port} {public(keys.other_host)}")
    common = {"workers": 1, "address": ADDRESS, "python": sys.executable}
    hosts = {
        name: {**common, "ports": free_ports(2), "directory": str(tmp_path / "hosts" / name)}
        for name in ("dead", "refusing", "changed", "good")
    }
    project = Project(tmp_path / "project", hosts, {"ssh_config": str(site.ssh_config)})
    done = project.tf("push")
    assert done.returncode == 1
    assert "dead: no SSH connection" in done.stderr
    assert "refusing: it refused every key" in done.stderr
    assert "changed: its host key is not the one in known_hosts" in done.stderr
    assert "good:" not in error_of(done)
    assert len(project.releases("good")) == 1
