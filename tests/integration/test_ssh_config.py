"""The settings of a host are those of `ssh -G`, which is called once for each host."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.sshd import program

from tfdeploy.config import inventory as inventories
from tfdeploy.errors import Unreachable
from tfdeploy.transport.ssh import config as openssh
from tfdeploy.transport.ssh import transport as ssh_transport

REAL = program("ssh")
pytestmark = pytest.mark.skipif(not REAL, reason="ssh missing: apt-get install openssh-client")


class Client:
    """A user's ssh: a script that logs each call and runs the real one, and a configuration."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "config"
        self.program = folder / "bin" / "ssh"
        self._calls = folder / "calls"
        self._calls.touch()
        self.period = 0
        self.replace_ssh(f'exec {REAL} "$@"')

    def replace_ssh(self, command):
        """Set the command that the script runs after it has logged the call."""
        script = f'#!/bin/sh\necho "$@" >> {self._calls}\n{command}\n'
        self.write("bin/ssh", script).chmod(0o755)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def inventory(self, *hosts, config=True, **keys):
        keys_text = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
        text = 'project = "p"\n' + (f'ssh_config = "{self.config}"\n' if config else "")
        text += '[training]\ncommand = "python train.py"\n'
        text += "".join(f'[hosts."{host}"]\nworkers = 1\n{keys_text}' for host in hosts)
        return inventories.parse(text, self.folder / "hosts.toml")

    def resolve(self, host="a", **changes):
        """Return the host's settings, and how often ssh was called for them."""
        inventory = self.inventory(host, **changes)
        before = self.calls()
        return openssh.resolve(inventory.hosts[0], inventory), self.calls() - before

    def resolve_with_ssh(self, host="a", **changes):
        """Return the settings of a host as ssh itself resolves them now."""
        inventory = self.inventory(host, **changes)
        argv = [*openssh.ssh_command(inventory.hosts[0], inventory), "-G", "--", host]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return openssh._parse(done.stdout, host)

    def calls(self):
        return len(self._calls.read_text().splitlines())


@pytest.fixture
def client(tmp_path, monkeypatch):
    test_client = Client(tmp_path)
    test_client.write("config", "Host *\n  User ada\n")
    monkeypatch.setenv("PATH", f"{test_client.program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(openssh, "period", lambda seconds: test_client.period)
    openssh._query.cache_clear()
    return test_client


# One call


def test_ssh_is_called_once_for_each_host(client):
    assert client.resolve()[1] == 1
    assert client.resolve()[1] == 0
    assert client.resolve("b")[1] == 1
    assert client.resolve("a")[1] == 0


def test_ssh_is_called_again_after_a_while(client):
    client.resolve()
    client.write("config", "Host *\n  User bob\n")
    client.period += 1
    answer, calls = client.resolve()
    assert (answer.user, calls) == ("bob", 1)


@pytest.mark.parametrize(
    "keys", [{"user": "bob"}, {"hostname": "x.example"}, {"proxy_jump": "gate"}], ids=str
)
def test_a_key_of_hosts_toml_needs_another_call(client, keys):
    client.resolve()
    answer, calls = client.resolve(**keys)
    assert (answer, calls) == (client.resolve_with_ssh(**keys), 1)


def test_ssh_is_called_once_for_a_jump_host(client):
    inventory = client.inventory("a")
    answer = openssh.resolve_jump("bob@gate:23", inventory)
    assert (answer.hostname, answer.user, answer.port) == ("gate", "bob", 23)
    assert openssh.resolve_jump("bob@gate:23", inventory) == answer
    assert client.calls() == 1


def test_many_hosts_are_resolved_at_once(client):
    hosts = [f"h{n}" for n in range(40)]
    inventory = client.inventory(*hosts)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda host: openssh.resolve(host, inventory), inventory.hosts)
        assert [each.hostname for each in found] == hosts
    assert client.calls() == 40


# The same answer as ssh

CONFIGS = {
    "patterns": "Host a b*\n User x\nHost !c *\n Port 7\nHost *\n User y\n HostName %h.example\n",
    "match": "Match host c\n User z\nMatch originalhost a,b\n Port 9\nMatch all\n User w\n",
    "final": "Host a\n HostName a.example\nMatch final host *.example\n Port 77\n",
    "includes": "Include more.conf\nHost b\n Include deep/*.conf\nInclude nothing/*.conf\n",
    "quoted": 'Include "{folder}/a space/*.conf"\ninclude={folder}/.ssh/more.conf\nHost *\n',
    "tilde": "Include ~/.ssh/deep/one.conf ~/.ssh/more.conf\n",
    "tokens": "Host *\n IdentityFile %d/keys/%h-%r\n ProxyCommand nc %%x %h %p %n\n",
    "jumps": "Host a\n ProxyJump x,y:7\nHost b\n HostKeyAlias c\nHost *\n ProxyJump none\n",
    "environment": "Host *\n UserKnownHostsFile ${{WHERE}}/known\n IdentityFile ${{WHERE}}/id\n",
    "crlf": "Host a\r\n  User windows\r\nInclude more.conf\r\n",
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_the_settings_equal_those_of_ssh(client, text, monkeypatch):
    monkeypatch.setenv("WHERE", "/nowhere")
    client.write(".ssh/more.conf", "Host a\n Port 1234\n Include deep/one.conf\n")
    client.write(".ssh/deep/one.conf", "Host *\n IdentityFile /one\n")
    client.write("a space/b.conf", "Host *\n User spaced\n")
    client.write("config", text.format(folder=client.folder))
    for host in ("a", "b", "c", "b1", "10.0.0.1"):
        assert client.resolve(host)[0] == client.resolve_with_ssh(host)


def test_ssh_itself_adds_no_key_to_known_hosts(client):
    client.write("config", "Host *\n UpdateHostKeys yes\n StrictHostKeyChecking accept-new\n")
    inventory = client.inventory("a")
    argv = [*openssh.ssh_command(inventory.hosts[0], inventory), "-G", "--", "a"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    answer = done.stdout.splitlines()
    assert "updatehostkeys false" in answer and "stricthostkeychecking true" in answer


# Errors of ssh


def test_an_error_of_ssh_is_printed(client):
    client.write("config", "Include more.conf\nHost *\n  Nonsense yes\n")
    done = subprocess.run([REAL, "-F", client.config, "-G", "a"], capture_output=True, text=True)
    with pytest.raises(Unreachable) as error:
        client.resolve()
    lines = "; ".join(line.strip() for line in done.stderr.splitlines())
    assert error.value.message == f"ssh refuses its configuration: {lines}"


def test_an_error_of_ssh_is_not_cached(client):
    client.write("config", "Nonsense yes\n")
    for _ in range(2):
        with pytest.raises(Unreachable):
            client.resolve()
    client.write("config", "Host *\n  User bob\n")
    assert client.resolve()[0].user == "bob"


def test_a_missing_ssh_is_reported_with_what_to_install(client, monkeypatch):
    monkeypatch.setenv("PATH", str(client.folder))
    with pytest.raises(Unreachable, match="not installed"):
        client.resolve()


# The cipher of transfers


def transfer_ciphers(client):
    """Return the ciphers of rsync's ssh to host a, as ssh itself lists them."""
    inventory = client.inventory("a")
    argv = [*ssh_transport.transfer_command(inventory.hosts[0], inventory), "-G", "--", "a"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return openssh.settings(listed)["ciphers"][0]


@pytest.fixture
def cpu_info(tmp_path, monkeypatch):
    """The file in which this machine describes its processor."""
    file = tmp_path / "cpuinfo"
    file.write_text("flags\t\t: fpu aes avx\n")
    monkeypatch.setattr(ssh_transport, "CPU_INFO", file)
    ssh_transport._has_aes.cache_clear()
    yield file
    ssh_transport._has_aes.cache_clear()


OLD_DEFAULT = ssh_transport.DEFAULT


def test_transfers_prefer_aes_gcm_to_an_older_default(client, cpu_info):
    client.write("config", f"Host a\n  Ciphers {OLD_DEFAULT}\n")
    assert transfer_ciphers(client).startswith("aes128-gcm@openssh.com,")
    assert {*transfer_ciphers(client).split(",")} == {*OLD_DEFAULT.split(",")}


@pytest.mark.parametrize(
    "configured",
    [
        "chacha20-poly1305@openssh.com,aes256-ctr,aes128-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes256-ctr,aes128-ctr",
    ],
)
def test_ciphers_that_the_configuration_chooses_are_obeyed(client, cpu_info, configured):
    client.write("config", f"Host a\n  Ciphers {configured}\n")
    assert transfer_ciphers(client) == configured


def test_a_processor_without_aes_keeps_the_ciphers(client, cpu_info):
    cpu_info.write_text("flags\t\t: fpu avx\n")
    client.write("config", f"Host a\n  Ciphers {OLD_DEFAULT}\n")
    assert transfer_ciphers(client) == OLD_DEFAULT
