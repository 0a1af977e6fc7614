"""What SSH can do to us, done by a real sshd: each time one sentence with the host's name."""

from __future__ import annotations

import inspect
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import paramiko
import pytest

from tfdeploy import inventory
from tfdeploy.errors import (
    AuthenticationFailed,
    CommandFailed,
    HostError,
    HostKeyRefused,
    TransferFailed,
    Unreachable,
)
from tfdeploy.fleet import Fleet
from tfdeploy.transport import channels, openssh
from tfdeploy.transport.ssh import SshTransport
from tfdeploy.transport.translate import translated

from .projects import Project, toml
from .sshd import ADDRESS, Keys, Sshd, free_ports, public, until, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RELAY = """\
import os, socket, sys, threading
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def upwards():
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=upwards, daemon=True).start()
while data := peer.recv(65536):
    os.write(1, data)
"""
NOISE = r"""ForceCommand {}; eval "$SSH_ORIGINAL_COMMAND" """


class Site:
    """One test's own ssh_config, known_hosts and hosts.toml."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys = folder, keys
        self.known = folder / "known_hosts"
        self.known.write_text("")
        self.entries: dict[str, dict[str, str]] = {}
        self.opened: list[SshTransport] = []

    def knows(self, name: str, sshd: Sshd, **more: str) -> None:
        """`name` is in ssh_config, and its host key in known_hosts."""
        self.entries[name] = sshd.entry(**more)
        self.known.write_text(self.known.read_text() + sshd.known)

    @property
    def ssh_config(self) -> Path:
        file = self.folder / "ssh_config"
        write_ssh_config(file, self.keys, self.known, self.entries)
        return file

    def inventory(self, **hosts: dict[str, Any]) -> inventory.Inventory:
        top = {"project": "p", "ssh_config": self.ssh_config.name}
        text = toml({**top, "training": {"command": "true"}, "hosts": hosts})
        return inventory.parse(text, self.folder / "hosts.toml")

    def transport(self, name: str = "one", *, accept_new: bool = False, **settings: Any):
        known = self.inventory(**{name: settings})
        self.opened.append(SshTransport(known.host(name), known, accept_new=accept_new))
        return self.opened[-1]

    def echo(self, name: str = "one", **settings: Any) -> bytes:
        return self.transport(name, **settings).run(["echo", "on"], timeout_s=30).stdout


@pytest.fixture
def site(tmp_path: Path, keys: Keys) -> Iterator[Site]:
    made = Site(tmp_path, keys)
    yield made
    for transport in made.opened:
        transport.close()


@pytest.fixture
def sshd(tmp_path: Path, keys: Keys) -> Iterator[Callable[..., Sshd]]:
    """One more sshd, configured by the lines it is called with."""
    running: list[Sshd] = []

    def begin(*lines: str) -> Sshd:
        running.append(Sshd(tmp_path, keys, *lines))
        return running[-1]

    yield begin
    for each in running:
        each.stop()


@pytest.fixture
def one(sshds: dict[str, Sshd]) -> Sshd:
    return sshds["one"]


# Host keys


def test_an_unknown_host_key_is_refused(site, one):
    site.entries["one"] = one.entry()
    with pytest.raises(HostKeyRefused, match=r"one: its host key is unknown: .*ssh-ed25519") as no:
        site.echo()
    assert "--accept-new-host-keys" in no.value.hint
    assert site.known.read_text() == ""


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_host_key_is_refused_whatever_is_accepted(site, one, keys, accept_new):
    site.entries["one"] = one.entry()
    site.known.write_text(f"[{ADDRESS}]:{one.port} {public(keys.other_host)}")
    with pytest.raises(HostKeyRefused, match=r"one: its host key is not the one") as no:
        site.echo(accept_new=accept_new)
    assert f"ssh-keygen -R '[{ADDRESS}]:{one.port}'" in no.value.hint


def test_a_new_host_key_is_accepted_by_one_line_and_known_from_then_on(site, one, tmp_path):
    site.entries["one"] = one.entry()
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    accepting = site.transport(accept_new=True)
    assert accepting.run(["true"], timeout_s=30).exit == 0
    accepting.push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert site.known.read_text().split() == one.known.split()[:3]
    assert site.echo() == b"on\n"


def test_accepting_a_key_keeps_what_known_hosts_holds(site, one, keys):
    """Even where its last line has no end."""
    site.entries["one"] = one.entry()
    other = f"other.example {public(keys.other_host)}".strip()
    site.known.write_text(other)
    site.echo(accept_new=True)
    assert [line.split()[0] for line in site.known.read_text().splitlines()] == [
        "other.example",
        f"[{ADDRESS}]:{one.port}",
    ]
    assert site.echo() == b"on\n"


def test_many_new_hosts_at_once_give_one_line_each(site, sshds):
    for name, sshd in sshds.items():
        site.entries[name] = sshd.entry()
    transports = [site.transport(name, accept_new=True) for name in sshds]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.run(["true"], timeout_s=30), transports))
    lines = [line.split()[0] for line in site.known.read_text().splitlines()]
    assert sorted(lines) == sorted(f"[{ADDRESS}]:{sshd.port}" for sshd in sshds.values())


def test_the_command_line_accepts_new_host_keys_only_when_told(site, one, tmp_path):
    site.entries["one"] = one.entry()
    top = {"ssh_config": str(site.ssh_config)}
    project = Project(tmp_path / "project", {"one": settled(site)}, top)
    refused = project.tf("push")
    assert refused.returncode == 1
    assert "--accept-new-host-keys" in refused.stderr
    project.ok("push", "--accept-new-host-keys")
    assert len(site.known.read_text().splitlines()) == 1
    assert len(project.releases("one")) == 1


# Keys


def test_a_refused_key_is_said_so(site, one, keys):
    site.knows("one", one, IdentityFile=str(keys.stranger))
    with pytest.raises(AuthenticationFailed, match=r"one: it refused every key"):
        site.echo()


@pytest.mark.parametrize("reason", ["unknown host key", "refused key"])
def test_a_refused_connection_is_not_left_open(site, sshd, keys, reason):
    server = sshd()
    site.knows("one", server, IdentityFile=str(keys.stranger))
    if reason == "unknown host key":
        site.known.write_text("")
    with pytest.raises(HostError):
        site.echo()
    until(lambda: not server.connections, "the end of the connection", 5)


def test_no_key_at_all_is_a_matter_of_keys(site, one, tmp_path):
    site.knows("one", one, IdentityFile="none")
    with pytest.raises(AuthenticationFailed, match=r"one: "):
        site.echo(identity_file=str(tmp_path / "absent"))


def test_a_locked_key_names_ssh_add(site, one, tmp_path):
    site.knows("one", one, IdentityFile="none")
    locked = Keys(tmp_path / "keys").made("locked", "a passphrase")
    with pytest.raises(AuthenticationFailed, match=r"passphrase") as no:
        site.echo(identity_file=str(locked))
    assert "ssh-add" in no.value.hint


def test_a_broken_key_is_an_error_of_the_host(site, one, tmp_path):
    site.knows("one", one, IdentityFile="none")
    (tmp_path / "broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nno\n")
    with pytest.raises(HostError, match=r"one: "):
        site.echo(identity_file=str(tmp_path / "broken"))


def test_hosts_toml_alone_can_say_how_to_connect(site, one, keys):
    site.known.write_text(one.known)
    own = {"hostname": ADDRESS, "port": one.port, "identity_file": str(keys.user)}
    assert site.echo("another", **own) == b"on\n"


# The way there


def test_a_closed_port_is_unreachable(site):
    site.entries["one"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    with pytest.raises(Unreachable, match=r"one: no SSH connection: .*refused"):
        site.echo()


@pytest.mark.parametrize("name", ["no-such-host.invalid", "typo..example", "x" * 64 + ".example"])
def test_a_name_that_leads_nowhere_is_unreachable(site, name):
    with pytest.raises(Unreachable, match=r"one: its name"):
        site.entries["one"] = {"HostName": name}
        site.echo()


def test_a_host_behind_another_is_run_on_and_pushed_to(site, sshds, tmp_path):
    site.knows("jump", sshds["two"])
    site.knows("one", sshds["one"])
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    transport = site.transport(proxy_jump="jump")
    assert (
        b" " + str(sshds["one"].port).encode()
        in transport.run(["sh", "-c", "echo $SSH_CONNECTION"], timeout_s=30).stdout
    )
    transport.push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert (tmp_path / "dest/file").read_text() == "x"


def test_a_chain_of_jumps_in_ssh_config_is_followed(site, sshds):
    site.knows("first", sshds["two"])
    site.knows("second", sshds["three"])
    site.knows("one", sshds["one"], ProxyJump="first,second")
    assert site.echo() == b"on\n"


def test_a_proxy_command_is_used(site, one, tmp_path):
    (tmp_path / "relay.py").write_text(RELAY)
    site.knows("one", one, ProxyCommand=f"{sys.executable} {tmp_path}/relay.py %h %p")
    assert site.echo() == b"on\n"


def test_a_dead_jump_host_is_named(site, one):
    site.entries["jump"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    site.knows("one", one)
    with pytest.raises(Unreachable, match=r"(?s)one: .*jump"):
        site.echo(proxy_jump="jump")


def test_a_jump_host_that_refuses_the_key_is_named(site, one, sshds, keys):
    site.knows("jump", sshds["two"], IdentityFile=str(keys.stranger))
    site.knows("one", one)
    with pytest.raises(AuthenticationFailed, match=r"(?s)one: .*jump"):
        site.echo(proxy_jump="jump")


def test_an_unknown_jump_host_is_refused_and_named(site, one, sshds):
    site.entries["jump"] = sshds["two"].entry()
    site.knows("one", one)
    with pytest.raises(HostKeyRefused, match=r"(?s)one: .*jump|:" + str(sshds["two"].port)):
        site.echo(proxy_jump="jump")


def test_a_host_that_its_jump_host_can_not_reach_is_said_to_be_that(site, sshds):
    site.knows("jump", sshds["two"])
    site.entries["one"] = sshds["one"].entry(Port=str(free_ports(1)[0]))
    with pytest.raises(Unreachable, match="one: the jump host can't connect to it"):
        site.echo(proxy_jump="jump")


def test_sessions_that_sshd_allows_none_of_are_no_fault_of_a_jump_host(site, sshd):
    site.knows("one", sshd("MaxSessions 0"))
    with pytest.raises(Unreachable, match="one: the SSH connection failed"):
        site.echo()


def test_a_lost_connection_is_no_timeout_and_the_next_command_connects_anew(site, sshd):
    server = sshd()
    site.knows("one", server)
    transport = site.transport()
    transport.run(["true"], timeout_s=30)
    threading.Timer(0.3, server.hang_up).start()
    with pytest.raises(Unreachable, match=r"one: "):
        transport.run(["sleep", "20"], timeout_s=60)
    assert transport.run(["echo", "on"], timeout_s=30).stdout == b"on\n"


def test_a_stream_says_that_its_connection_was_lost(site, sshd):
    server = sshd()
    site.knows("one", server)
    stream = site.transport().stream(["sh", "-c", "echo on; exec cat"])
    assert stream.read(30) == b"on\n"
    server.hang_up()
    with pytest.raises(Unreachable, match=r"one: the connection was lost"):
        stream.read(30)


def test_an_answer_without_an_end_is_refused_before_it_fills_our_memory(site, sshds, monkeypatch):
    monkeypatch.setattr(channels, "MAX_OUTPUT", 1_000_000)
    site.knows("one", sshds["one"])
    with pytest.raises(CommandFailed, match="its answer has no end"):
        site.transport().run(["yes"], timeout_s=60)


def test_connections_that_sshd_drops_under_load_are_tried_again(site, sshd, tmp_path):
    site.knows("one", sshd("MaxStartups 1"))
    transports = [site.transport() for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda each: each.run(["echo", "on"], timeout_s=30), transports))
    assert [each.stdout for each in done] == [b"on\n"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("answers", "said"), [(b"SSH-2.0-busy\r\n", b"on\n"), (b"", None)])
def test_one_that_is_slow_to_shake_hands_is_asked_again_a_silent_one_is_not(
    site, one, monkeypatch, answers, said
):
    monkeypatch.setattr(openssh, "CONNECT_TIMEOUT_S", 1)
    with slow_once(one, answers) as port:
        site.entries["one"] = one.entry(Port=str(port))
        site.known.write_text(f"[{ADDRESS}]:{port} {public(one.keys.host)}\n")
        if said:
            assert site.echo() == said
        else:
            with pytest.raises(Unreachable, match="one: no SSH answer within 1 s"):
                site.echo()


@contextmanager
def slow_once(sshd: Sshd, answers: bytes) -> Iterator[int]:
    """A port of sshd's, at which the first who comes is not answered, but for this."""
    with socket.create_server((ADDRESS, 0)) as front:

        def serve() -> None:
            first, _ = front.accept()
            first.sendall(answers)
            with suppress(OSError):
                while True:
                    came, _ = front.accept()
                    behind = socket.create_connection((ADDRESS, sshd.port))
                    for ends in ((came, behind), (behind, came)):
                        threading.Thread(target=passed_on, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield front.getsockname()[1]
        front.shutdown(socket.SHUT_RDWR)


def passed_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_transfers_that_sshd_drops_under_load_are_tried_again(site, sshd, tmp_path):
    site.knows("one", sshd("MaxStartups 1"))
    (tmp_path / "file").write_text("x" * 100)
    (tmp_path / "dest").mkdir()
    transports = [site.transport() for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.push(tmp_path, f"{tmp_path}/dest", ["file"]), transports))
    assert (tmp_path / "dest/file").read_text() == "x" * 100


# What answers there


def settled(site: Site, **settings: Any) -> dict[str, Any]:
    own = {"workers": 1, "directory": str(site.folder / "host"), "python": sys.executable}
    return {**own, "ports": free_ports(2), **settings}


def ask(site: Site, **settings: Any) -> Any:
    with Fleet(site.inventory(one=settled(site, **settings))) as fleet:
        return fleet.agents["one"].ask("offer", {"project": "p", "release": "r"})


def test_a_missing_python_is_named_with_the_key_to_set(site, one):
    site.knows("one", one)
    with pytest.raises(CommandFailed, match=r"one: python9 can't be run there: .*not found") as no:
        ask(site, python="python9")
    assert "python in hosts.toml" in no.value.hint


def test_a_directory_that_can_not_be_written_is_named(site, one, tmp_path):
    site.knows("one", one)
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match=r"one: .*/file/.* can't be written: ") as no:
        ask(site, directory=str(tmp_path / "file"))
    assert "directory" in no.value.hint


@pytest.mark.parametrize("noise", ["echo hello", "printf 'no end: '", "echo hello >&2"])
def test_a_talkative_shell_profile_changes_no_answer(site, sshd, noise):
    site.knows("one", sshd(NOISE.format(noise)))
    assert ask(site)["present"] is False
    told = {"project": "p", "run": "r", "tasks": [], "logs": True, "lines": None, "forever": True}
    with Fleet(site.inventory(one=settled(site))) as fleet:
        assert list(fleet.agents["one"].follow(told)) == [{"end": True}]


def test_a_talkative_shell_profile_is_the_reason_named_when_rsync_fails(site, sshd, tmp_path):
    site.knows("one", sshd(NOISE.format("echo hello")))
    (tmp_path / "file").write_text("x")
    with pytest.raises(TransferFailed, match=r"is your shell clean"):
        site.transport().push(tmp_path, str(tmp_path), ["file"])


def test_a_host_without_rsync_is_told_so(site, sshd, tmp_path):
    site.knows("one", sshd("SetEnv PATH=/nowhere"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(TransferFailed, match=r"rsync.* not (found|installed there)"):
        site.transport().push(tmp_path, str(tmp_path), ["file"])


def test_a_profile_that_talks_on_standard_error_hinders_no_push(site, sshd, tmp_path):
    site.knows("one", sshd(NOISE.format("echo hello >&2")))
    (tmp_path / "file").write_text("x")
    (tmp_path / "dest").mkdir()
    site.transport().push(tmp_path, str(tmp_path / "dest"), ["file"])
    assert (tmp_path / "dest/file").read_text() == "x"


# All of them


def foreign() -> list[BaseException]:
    """One of each exception that paramiko defines, and what sockets raise."""
    key = paramiko.PKey
    made = {
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
    return [*(kind(*made.get(kind.__name__, ("no",))) for kind in kinds), *system, EOFError()]


@pytest.mark.parametrize("error", foreign(), ids=lambda error: type(error).__name__)
def test_every_foreign_exception_is_translated_with_the_hosts_name(error):
    ours = translated("one", error)
    assert isinstance(ours, HostError)
    assert str(ours).startswith("one: ")
    assert str(ours).strip()[-1] not in ":;"


def test_what_is_no_error_of_a_host_is_not_hidden():
    with pytest.raises(KeyError):
        translated("one", KeyError("defect"))


def test_no_bad_host_hides_another_nor_hinders_a_good_one(site, sshd, sshds, keys, tmp_path):
    site.knows("good", sshds["one"])
    site.entries["dead"] = {"HostName": ADDRESS, "Port": str(free_ports(1)[0])}
    (tmp_path / "nobody").write_text("")
    site.knows("refusing", sshd(f"AuthorizedKeysFile {tmp_path}/nobody"))
    site.entries["changed"] = sshds["two"].entry()
    with site.known.open("a") as file:
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
    assert "good" not in done.stderr
    assert len(project.releases("good")) == 1
