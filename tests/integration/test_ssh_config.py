"""The cache of `ssh -G`: ssh is called once for each host, and again after any relevant change."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support import command_line
from support.sshd import program

from tfdeploy.config import inventory as inventories
from tfdeploy.errors import Unreachable
from tfdeploy.transport.ssh import config as openssh
from tfdeploy.transport.ssh import config_cache
from tfdeploy.transport.ssh import transport as ssh_transport

REAL = program("ssh")
SETTLED_S = 0.05
pytestmark = pytest.mark.skipif(not REAL, reason="ssh missing: apt-get install openssh-client")


class Client:
    """A user's ssh: a script that logs each call and runs the real one, and a configuration."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "config"
        self.program = folder / "bin" / "ssh"
        self.cache = folder / "cache" / "tfdeploy" / "ssh-config"
        self._calls = folder / "calls"
        self._calls.touch()
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

    def settle(self):
        """Wait until the files are old enough for an answer to be cached."""
        time.sleep(SETTLED_S * 1.5)

    def is_cached(self, host="a", **changes):
        """Resolve twice; return whether the second time needed no call."""
        self.settle()
        self.resolve(host, **changes)
        return self.resolve(host, **changes)[1] == 0


@pytest.fixture
def client(tmp_path, monkeypatch):
    test_client = Client(tmp_path)
    test_client.write("config", "Host *\n  User ada\n")
    monkeypatch.setenv("PATH", f"{test_client.program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(config_cache, "SETTLED_NS", int(SETTLED_S * 1e9))
    return test_client


# One call


def test_ssh_is_called_once_for_each_host(client):
    client.settle()
    assert client.resolve()[1] == 1
    assert client.resolve()[1] == 0
    assert client.resolve("b")[1] == 1
    assert client.resolve("a")[1] == 0


@pytest.mark.parametrize(
    "keys", [{"user": "bob"}, {"hostname": "x.example"}, {"proxy_jump": "gate"}], ids=str
)
def test_a_key_of_hosts_toml_needs_another_call(client, keys):
    assert client.is_cached()
    answer, calls = client.resolve(**keys)
    assert (answer, calls) == (client.resolve_with_ssh(**keys), 1)


def test_ssh_is_called_once_for_a_jump_host(client):
    client.settle()
    inventory = client.inventory("a")
    answer = openssh.resolve_jump("bob@gate:23", inventory)
    assert (answer.hostname, answer.user, answer.port) == ("gate", "bob", 23)
    assert openssh.resolve_jump("bob@gate:23", inventory) == answer
    assert client.calls() == 1


def test_many_hosts_resolved_at_once_are_all_cached(client):
    client.settle()
    hosts = [f"h{n}" for n in range(40)]
    inventory = client.inventory(*hosts)

    def resolve_all():
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda host: openssh.resolve(host, inventory), inventory.hosts))

    first = resolve_all()
    assert client.calls() == 40
    assert resolve_all() == first
    assert [each.hostname for each in first] == hosts
    assert client.calls() == 40


def test_the_cache_is_private(client):
    assert client.is_cached()
    (file,) = client.cache.iterdir()
    assert (file.stat().st_mode & 0o777, client.cache.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.slow
def test_the_next_command_does_not_call_ssh(client):
    """With the real limits, in new processes, and also with the default configuration."""
    client.write("train.py", "")
    shutil.rmtree(client.folder / "cache", ignore_errors=True)
    age_s = 1.5 * 2
    for config in (f'ssh_config = "{client.config}"\n', ""):
        client.write(
            "hosts.toml",
            f'project = "p"\n{config}[training]\ncommand = "python train.py"\n'
            + "".join(f"[hosts.h{n}]\nworkers = 1\n" for n in range(5)),
        )
        time.sleep(max(0.0, age_s - (time.time() - client.config.stat().st_ctime)))
        outputs = []
        for calls in (5, 0):
            before = client.calls()
            done = subprocess.run(
                [*command_line.REAL, "plan", "--json"],
                cwd=client.folder, capture_output=True, text=True, check=True,
            )  # fmt: skip
            outputs.append(done.stdout)
            assert client.calls() - before == calls
        assert outputs[0] == outputs[1]


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
def test_a_cached_answer_equals_that_of_ssh(client, text, monkeypatch):
    monkeypatch.setenv("WHERE", "/nowhere")
    client.write(".ssh/more.conf", "Host a\n Port 1234\n Include deep/one.conf\n")
    client.write(".ssh/deep/one.conf", "Host *\n IdentityFile /one\n")
    client.write("a space/b.conf", "Host *\n User spaced\n")
    client.write("config", text.format(folder=client.folder))
    client.settle()
    for host in ("a", "b", "c", "b1", "10.0.0.1"):
        first, calls = client.resolve(host)
        assert (first, calls) == (client.resolve_with_ssh(host), 1)
        assert client.resolve(host) == (first, 0)


def test_ssh_itself_adds_no_key_to_known_hosts(client):
    client.write("config", "Host *\n UpdateHostKeys yes\n StrictHostKeyChecking accept-new\n")
    inventory = client.inventory("a")
    argv = [*openssh.ssh_command(inventory.hosts[0], inventory), "-G", "--", "a"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    answer = done.stdout.splitlines()
    assert "updatehostkeys false" in answer and "stricthostkeychecking true" in answer


# Called again


def edited(client):
    client.write("config", "Host *\n  User bob\n")


def edited_with_equal_size_and_time(client):
    """Keep the size, and set the old times."""
    before = client.config.stat()
    client.write("config", client.config.read_text().replace("ada", "bob"))
    os.utime(client.config, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(client):
    client.write("new", "Host *\n  User bob\n").rename(client.config)


def included_edited(client):
    client.write("parts/one.conf", "Host *\n Port 99\n")


def included_added(client):
    client.write("parts/two.conf", "Host *\n HostName elsewhere\n")


def included_removed(client):
    (client.folder / "parts" / "one.conf").unlink()


def folder_removed(client):
    shutil.rmtree(client.folder / "parts")


def folder_added(client):
    client.write("trees/new/x.conf", "Host *\n HostName elsewhere\n")


def absent_appears(client):
    client.write(".ssh/absent.conf", "Host *\n HostName elsewhere\n")


def nested_edited(client):
    client.write("trees/old/x.conf", "Host *\n Port 98\n")


def link_turned(client):
    client.folder.joinpath("link.conf").unlink()
    client.folder.joinpath("link.conf").symlink_to(client.write("other", "Host *\n Port 97\n"))


def variable_changed(_):
    os.environ["WHERE"] = "/elsewhere"


CHANGES = (
    *(edited, edited_with_equal_size_and_time, replaced, included_edited, included_added),
    *(included_removed, folder_removed, folder_added, absent_appears, nested_edited),
    *(link_turned, variable_changed),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_ssh_is_called_again_after_any_change(client, change, monkeypatch):
    monkeypatch.setenv("WHERE", "/somewhere")
    client.write("parts/one.conf", "Host *\n Port 23\n")
    client.write("trees/old/x.conf", "Host *\n IdentityFile /k\n")
    client.write("target", "Host *\n HostKeyAlias known\n")
    client.folder.joinpath("link.conf").symlink_to(client.folder / "target")
    includes = ("parts/*.conf", "trees/*/*.conf", "link.conf")
    lines = [f"Include {client.folder}/{each}" for each in includes]
    lines += ["Include absent.conf", "Host *", "UserKnownHostsFile ${WHERE}/known", "User ada"]
    client.write("config", "\n".join(lines) + "\n")
    client.settle()
    before, calls = client.resolve()
    assert (calls, client.resolve()[1]) == (1, 0)
    change(client)
    after, calls = client.resolve()
    assert (after, calls) == (client.resolve_with_ssh(), 1)
    assert after != before
    assert client.is_cached()


def test_another_ssh_program_is_called(client):
    assert client.is_cached()
    client.replace_ssh("exit 3")
    with pytest.raises(Unreachable):
        client.resolve()


def test_an_answer_from_a_file_that_may_still_change_is_not_cached(client, monkeypatch):
    """The time stamp of a young file does not show every change."""
    client.settle()
    client.write("config", "Host *\n  User bob\n")
    now_ns = client.config.stat().st_ctime_ns + 1
    with monkeypatch.context() as patch:  # the file stays young, however slow this machine is
        patch.setattr(openssh, "time", SimpleNamespace(time_ns=lambda: now_ns))
        assert [client.resolve()[1], client.resolve()[1]] == [1, 1]
    assert client.is_cached()


# Never cached

NEVER = {
    "exec": 'Match exec "true"\n  User bob\n',
    "exec for another": 'Match host zzz exec "true"\n  User bob\n',
    "exec included": "Include {folder}/exec.conf\n",
    "canonical names": "CanonicalizeHostname yes\nCanonicalDomains invalid\n",
    "always": "CanonicalizeHostname always\nCanonicalizeFallbackLocal yes\n",
    "aliases": "CanonicalizePermittedCNAMEs *.example:*.example\n",
    "unclear brackets": "Include {folder}/parts/[^a]*/x.conf\n",
    "unclear escapes": "Include {folder}/parts/x\\*.conf\n",
}


@pytest.mark.parametrize("text", NEVER.values(), ids=NEVER)
def test_an_answer_that_depends_on_more_than_files_is_not_cached(client, text):
    client.write("parts/b/y.conf", "")
    client.write("exec.conf", 'Host q\nmatch user=x !exec "false"\n')
    client.write("config", text.format(folder=client.folder))
    assert not client.is_cached("localhost")
    assert client.resolve("localhost")[0] == client.resolve_with_ssh("localhost")


@pytest.mark.parametrize(
    "line",
    ["Match localnetwork 10.0.0.0/8", " MATCH host x\tLocalNetwork=1.2.3.4/5", 'match "exec" x'],
)
def test_every_spelling_of_match_exec_is_found(line):
    """Even if this ssh is too old for it."""
    assert config_cache.NOT_IN_FILES.search(f"Host a\n{line}\n")
    assert not config_cache.NOT_IN_FILES.search(
        f"# {line}\nHost exec\n  LocalCommand {line}\nMatch all\n"
    )


def test_an_ssh_that_does_not_name_its_files_is_not_cached(client):
    client.replace_ssh(f'exec {REAL} "$@" 2>/dev/null')
    assert not client.is_cached()
    assert client.resolve()[0] == client.resolve_with_ssh()


@pytest.mark.parametrize("also", ["", f'{REAL} -v "$@" >&2; '], ids=["instead", "besides"])
def test_an_ssh_that_reads_another_file_is_not_cached(client, also):
    other = client.write("other", "Host *\n  Port 99\n")
    client.replace_ssh(f"{also}exec {REAL} -v -F {other} -G a")
    assert not client.is_cached()
    assert client.resolve()[0].port == 99


# Damaged cache files


def overwritten(data):
    def damage(file):
        file.write_bytes(data)

    return damage


def truncated(file):
    file.write_bytes(file.read_bytes()[:-9])


def others_may_write(file):
    file.chmod(0o622)


def another_users(file):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 65534, -1)


def a_link(file):
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def a_folder(file):
    file.unlink()
    file.mkdir()


DAMAGES = {
    "empty": overwritten(b""),
    "bytes": overwritten(bytes(range(256))),
    "a list": overwritten(b"[1, 2]\n[3, 4, 5]\n"),
    "a number": overwritten(b"7\n7\n"),
    "a word": overwritten(b'"word"\n'),
    "deep": overwritten(b"[" * 100_000),
    **{
        damage.__name__: damage
        for damage in (truncated, others_may_write, another_users, a_link, a_folder)
    },
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_cache_file_that_can_not_be_trusted_is_ignored(client, damage):
    assert client.is_cached()
    (file,) = client.cache.iterdir()
    damage(file)
    assert client.resolve() == (client.resolve_with_ssh(), 1)


@pytest.mark.parametrize("place", ["cache", "cache/tfdeploy/ssh-config"])
def test_a_cache_that_can_not_be_written_costs_a_call(client, place):
    client.write(place, "a file instead of a folder")
    client.settle()
    assert client.resolve() == (client.resolve_with_ssh(), 1)
    assert client.resolve()[1] == 1


@pytest.mark.parametrize("place", ["cache", "cache/tfdeploy/ssh-config"])
def test_root_writes_no_cache_into_another_users_home(client, place):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    folder = client.folder / place
    folder.mkdir(parents=True)
    os.chown(folder, 65534, -1)
    client.settle()
    assert client.resolve() == (client.resolve_with_ssh(), 1)
    assert list(folder.iterdir()) == []


def test_old_cache_files_are_deleted(client):
    old, young = client.cache / "old.json", client.cache / "young.json"
    client.write(old, "")
    client.write(young, "")
    os.utime(old, (time.time() - 40 * 86400,) * 2)
    assert client.is_cached()
    assert (old.exists(), young.exists()) == (False, True)


# Errors of ssh


def test_an_error_of_ssh_is_printed_without_the_messages_of_v(client):
    client.write("config", "Include more.conf\nHost *\n  Nonsense yes\n")
    done = subprocess.run([REAL, "-F", client.config, "-G", "a"], capture_output=True, text=True)
    with pytest.raises(Unreachable) as error:
        client.resolve()
    lines = "; ".join(line.strip() for line in done.stderr.splitlines())
    assert error.value.message == f"ssh refuses its configuration: {lines}"


def test_an_error_of_ssh_is_not_cached(client):
    assert client.is_cached()
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
