"""A host whose sshd lies: each command ends in time with one sentence that names the host."""

from __future__ import annotations

import os
import shlex
import sys

import pytest
from support import lying_sshd
from support.lying_sshd import LyingServer, serving
from support.ports import ADDRESS
from support.projects import toml
from support.sshd import Keys, Sshd, program, write_ssh_config
from support.terminal import answer_prompts
from support.waiting import until

from tfdeploy.config import inventory as inventories
from tfdeploy.errors import AuthenticationFailed, CommandTimedOut, HostError, Unreachable
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.shared.protocol.releases import FindRelease
from tfdeploy.transport.openssh import master
from tfdeploy.transport.openssh.transport import OpenSshTransport
from tfdeploy.transport.ssh import channels, config, connection
from tfdeploy.transport.ssh.transport import SshTransport

FABRIC, OPENSSH = SshTransport, OpenSshTransport
COMMAND_S = 1.0
FEW_BYTES = 32 << 20  # what the buffers of both sides have room for, of the 96 MB of a flood


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if not program(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: apt-get install openssh-server")
    return Keys(tmp_path_factory.mktemp("base") / "keys")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Shorten what a host may take."""
    for module in (connection, config):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 1)
    monkeypatch.setattr(connection, "BANNER_TIMEOUT_S", 1)
    monkeypatch.setattr(channels, "ANSWER_S", 1.0)
    monkeypatch.setattr(master, "OPEN_TIMEOUT_S", 2.0)
    monkeypatch.setattr("random.uniform", lambda *_: 0.0)  # no pause before the next attempt


@pytest.fixture
def liars(tmp_path, keys):
    """Return a function that starts a lying server, and returns it with an inventory of it."""
    running = []

    def start(lie, **others):
        running.append(server := LyingServer(keys, lie))
        servers = {"liar": server, **others}
        known = tmp_path / "known_hosts"
        known.write_text("".join(each.known_hosts_line for each in servers.values()))
        entries = {name: each.entry() for name, each in servers.items()}
        write_ssh_config(tmp_path / "ssh_config", keys, known, entries)
        hosts = {
            name: {"workers": 1, "directory": str(tmp_path / name), "python": sys.executable}
            for name in servers
        }
        top = {"project": "p", "ssh_config": "ssh_config", "keep_connections_s": 0}
        text = toml({**top, "training": {"command": "true"}, "hosts": hosts})
        return server, inventories.parse(text, tmp_path / "hosts.toml")

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def liar(liars):
    """Return a function that starts a lying server, and returns it with a transport to it."""
    opened = []

    def start(lie, kind):
        server, inventory = liars(lie)
        opened.append(kind(inventory.host("liar"), inventory))
        return server, opened[-1]

    yield start
    for each in opened:
        each.close()


NOT_SSH = "it accepts the connection, but does not answer as an SSH server"
NO_ANSWER = r"no SSH answer within \d s"
NO_OUTPUT = "echo gave no answer within 1 s"
LOST, ENDLESS, TOO_MUCH = "the connection was lost", "it prints without end: x", "more than it may"


@pytest.mark.parametrize(
    ("lie", "fabric", "openssh"),
    [
        (lying_sshd.banner_lines, NOT_SSH, NOT_SSH),
        (lying_sshd.banner_without_end, NO_ANSWER, NOT_SSH),
        (lying_sshd.banner_by_bytes, NO_ANSWER, NOT_SSH),
        (lying_sshd.another_protocol, NOT_SSH, NOT_SSH),
        (lying_sshd.impossible_packet, "Invalid packet", "the SSH connection failed: "),
        (serving(lying_sshd.NeverLogsIn), "it did not answer the login", "login was not finished"),
        (serving(lying_sshd.AsksForKeysForever), "it refused every key", "login was not finished"),
        (serving(lying_sshd.Phishes), "it refused every key", "asks for a password"),
        (serving(lying_sshd.NeverOpens), "Timeout opening", NO_OUTPUT),
        (serving(lying_sshd.NeverStarts), NO_ANSWER, NO_OUTPUT),
        (serving(lying_sshd.FloodsOutput), f"{NO_OUTPUT}|{TOO_MUCH}", f"{NO_OUTPUT}|{ENDLESS}"),
        (serving(lying_sshd.FloodsErrors), f"{TOO_MUCH}|{ENDLESS}", ENDLESS),
        (serving(lying_sshd.ErrorsWithoutEnd), ENDLESS, ENDLESS),
        (serving(lying_sshd.Drips), NO_OUTPUT, NO_OUTPUT),
        (serving(lying_sshd.Leaves), f"{LOST}|it was closed", LOST),
        (serving(lying_sshd.OtherHostKey), "its host key changed", LOST),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("kind", [FABRIC, OPENSSH])
def test_a_lie_is_one_sentence_with_the_hosts_name(liar, capfd, lie, fabric, openssh, kind):
    server, transport = liar(lie, kind)
    with pytest.raises(HostError, match=fabric if kind is FABRIC else openssh) as failed:
        transport.run(["echo"], timeout_s=COMMAND_S)
    assert failed.value.host == "liar"
    assert server.answers == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("lie", [lying_sshd.FloodsOutput, lying_sshd.FloodsErrors])
def test_a_host_that_ignores_the_window_does_not_fill_the_memory(liar, lie):
    server, transport = liar(serving(lie), FABRIC)
    stream = transport.stream(["echo"])
    until(lambda: server.is_flooded, "the end of the flood")
    assert server.sent < FEW_BYTES
    with pytest.raises(Unreachable, match=TOO_MUCH):
        while stream.read(COMMAND_S):
            pass


def test_a_host_that_sends_errors_without_end_is_given_up_in_time(liar):
    _, transport = liar(serving(lying_sshd.ErrorsWithoutEnd), FABRIC)
    with pytest.raises(CommandTimedOut, match="echo wrote nothing for 1 s"):
        transport.stream(["echo"]).read(COMMAND_S)


def test_a_host_that_reads_nothing_is_given_up(liar, monkeypatch):
    monkeypatch.setattr(channels, "STUCK_S", 0.5)
    _, transport = liar(serving(lying_sshd.Liar, lying_sshd.WithoutWindow), FABRIC)
    with pytest.raises(CommandTimedOut, match=r"cat read nothing for 0.5 s"):
        transport.stream(["cat"]).send(b"a small request")


@pytest.mark.parametrize("kind", [FABRIC, OPENSSH])
def test_a_host_that_asks_for_no_key_and_greets_is_used_in_silence(liar, capfd, kind):
    _, transport = liar(serving(lying_sshd.AcceptsAnybody), kind)
    assert transport.run(["echo"], timeout_s=20).stdout == b"on\n"
    assert capfd.readouterr() == ("", "")


def test_a_prompt_of_a_host_is_shown_as_the_hosts_own_and_without_its_escapes(liar, tmp_path):
    server, transport = liar(serving(lying_sshd.Phishes), OPENSSH)
    with pytest.raises(AuthenticationFailed) as refused:
        transport.run(["echo"], timeout_s=COMMAND_S)
    argv = shlex.split(refused.value.hint.partition("terminal: ")[2])
    _, output, prompts = answer_prompts(argv, {"id_ed25519": "x"}, tmp_path, os.environ)
    assert prompts[0] == "id_ed25519"
    assert f"@{ADDRESS}) " in output.partition("Enter passphrase")[0]
    assert "\x1b" not in output
    assert server.answers[0] == "x"


def test_other_hosts_are_unharmed_by_one_that_answers_another_protocol(liars, tmp_path, keys):
    honest = Sshd(tmp_path, keys)
    try:
        _, inventory = liars(serving(lying_sshd.SpeaksHttp), honest=honest)
        with Fleet(inventory) as fleet:
            asked = fleet.outcomes(["liar", "honest"], lambda a: a.ask(FindRelease("p", "r")))
    finally:
        honest.stop()
    assert asked["honest"].present is False
    assert isinstance(asked["liar"], HostError)
    assert asked["liar"].host == "liar"
