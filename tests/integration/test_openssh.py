"""ssh is asked once for each host, and again as soon as it could answer anything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfdeploy import inventory as inventories
from tfdeploy.errors import Unreachable
from tfdeploy.transport import answers, openssh, sources

from .sshd import program

REAL = program("ssh")
SETTLED_S = 0.05
pytestmark = pytest.mark.skipif(not REAL, reason="ssh missing: apt-get install openssh-client")


class Client:
    """A user's ssh: a script that notes each call, the real one behind it, and a configuration."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "config"
        self.program = folder / "bin" / "ssh"
        self.cache = folder / "cache" / "tfdeploy" / "ssh-config"
        self._calls = folder / "calls"
        self._calls.touch()
        self.becomes(f'exec {REAL} "$@"')

    def becomes(self, command):
        """What runs under the name of ssh, once it has noted the call."""
        script = f'#!/bin/sh\necho "$@" >> {self._calls}\n{command}\n'
        self.write("bin/ssh", script).chmod(0o755)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def inventory(self, *hosts, config=True, **keys):
        said = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
        text = 'project = "p"\n' + (f'ssh_config = "{self.config}"\n' if config else "")
        text += '[training]\ncommand = "python train.py"\n'
        text += "".join(f'[hosts."{host}"]\nworkers = 1\n{said}' for host in hosts)
        return inventories.parse(text, self.folder / "hosts.toml")

    def ask(self, host="a", **changes):
        """The host's settings, and how often ssh was called for them."""
        inventory = self.inventory(host, **changes)
        before = self.calls()
        return openssh.resolve(inventory.hosts[0], inventory), self.calls() - before

    def ask_anew(self, host="a", **changes):
        """As a command does that has only just begun."""
        answers._opened.cache_clear()
        return self.ask(host, **changes)

    def fresh(self, host="a", **changes):
        """The settings of a host as ssh itself tells them now."""
        inventory = self.inventory(host, **changes)
        argv = [*openssh.command(inventory.hosts[0], inventory), "-G", "--", host]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return openssh._parsed(done.stdout, host)

    def calls(self):
        return len(self._calls.read_text().splitlines())

    def settle(self):
        """What is younger than this is never remembered."""
        time.sleep(SETTLED_S * 1.5)

    def remembers(self, host="a", **changes):
        """Ask until it is remembered, or it is clear that it never will be."""
        self.settle()
        self.ask(host, **changes)
        return self.ask(host, **changes)[1] == 0


@pytest.fixture
def client(tmp_path, monkeypatch):
    made = Client(tmp_path)
    made.write("config", "Host *\n  User ada\n")
    monkeypatch.setenv("PATH", f"{made.program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sources, "SETTLED_NS", int(SETTLED_S * 1e9))
    answers._opened.cache_clear()
    yield made
    answers._opened.cache_clear()


# Once


def test_a_host_is_asked_once_by_all_commands(client):
    client.settle()
    assert client.ask()[1] == 1
    assert client.ask()[1] == 0
    assert client.ask_anew()[1] == 0
    assert client.ask_anew("b")[1] == 1
    assert client.ask_anew("a")[1] == 0


@pytest.mark.parametrize(
    "keys", [{"user": "bob"}, {"hostname": "x.example"}, {"proxy_jump": "gate"}], ids=str
)
def test_a_key_of_hosts_toml_is_another_question(client, keys):
    assert client.remembers()
    answer, calls = client.ask(**keys)
    assert (answer, calls) == (client.fresh(**keys), 1)


def test_a_jump_host_is_asked_once(client):
    client.settle()
    inventory = client.inventory("a")
    answer = openssh.resolve_jump("bob@gate:23", inventory)
    assert (answer.hostname, answer.user, answer.port) == ("gate", "bob", 23)
    answers._opened.cache_clear()
    assert openssh.resolve_jump("bob@gate:23", inventory) == answer
    assert client.calls() == 1


def test_many_hosts_asked_at_once_are_all_remembered(client):
    client.settle()
    hosts = [f"h{n}" for n in range(40)]
    inventory = client.inventory(*hosts)

    def all_of_them():
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda host: openssh.resolve(host, inventory), inventory.hosts))

    first = all_of_them()
    assert client.calls() == 40
    answers._opened.cache_clear()
    assert all_of_them() == first
    assert [each.hostname for each in first] == hosts
    assert client.calls() == 40


def test_commands_that_begin_side_by_side_lose_no_more_than_a_question(client):
    client.settle()
    client.ask("a")
    kept = answers.of(str(client.program), str(client.config))
    other = answers.Answers(kept._file)
    client.ask("b")
    other.keep(["ssh", "c"], "hostname c\n", kept._states)
    later = answers.Answers(kept._file)
    assert sorted(question.split()[-1] for question in later._texts) == ["a", "b", "c"]
    other.keep(["ssh", "d"], "hostname d\n", {"/etc/services": None})  # it saw another state
    client.ask("e")
    assert sorted(answers.Answers(kept._file)._texts) == ["ssh d"]


def test_nobody_else_may_read_what_is_kept(client):
    assert client.remembers()
    (file,) = client.cache.iterdir()
    assert (file.stat().st_mode & 0o777, client.cache.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.slow
def test_the_next_command_asks_nothing(client):
    """With the real limits, in processes of their own, and with the default configuration too."""
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
        told = []
        for calls in (5, 0):
            before = client.calls()
            done = subprocess.run(
                [sys.executable, "-m", "tfdeploy", "plan", "--json"],
                cwd=client.folder, capture_output=True, text=True, check=True,
            )  # fmt: skip
            told.append(done.stdout)
            assert client.calls() - before == calls
        assert told[0] == told[1]


# The same as ssh says

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
def test_what_is_remembered_is_what_ssh_says(client, text, monkeypatch):
    monkeypatch.setenv("WHERE", "/nowhere")
    client.write(".ssh/more.conf", "Host a\n Port 1234\n Include deep/one.conf\n")
    client.write(".ssh/deep/one.conf", "Host *\n IdentityFile /one\n")
    client.write("a space/b.conf", "Host *\n User spaced\n")
    client.write("config", text.format(folder=client.folder))
    client.settle()
    for host in ("a", "b", "c", "b1", "10.0.0.1"):
        first, calls = client.ask(host)
        assert (first, calls) == (client.fresh(host), 1)
        assert client.ask_anew(host) == (first, 0)


# Asked again


def edited(client):
    client.write("config", "Host *\n  User bob\n")


def edited_without_a_trace(client):
    """As many bytes as before, and the times put back."""
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
    *(edited, edited_without_a_trace, replaced, included_edited, included_added),
    *(included_removed, folder_removed, folder_added, absent_appears, nested_edited),
    *(link_turned, variable_changed),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("anew", [False, True], ids=["same-command", "next-command"])
def test_ssh_is_asked_again_after_any_change(client, change, anew, monkeypatch):
    monkeypatch.setenv("WHERE", "/somewhere")
    client.write("parts/one.conf", "Host *\n Port 23\n")
    client.write("trees/old/x.conf", "Host *\n IdentityFile /k\n")
    client.write("target", "Host *\n HostKeyAlias known\n")
    client.folder.joinpath("link.conf").symlink_to(client.folder / "target")
    includes = ("parts/*.conf", "trees/*/*.conf", "link.conf")
    lines = [f"Include {client.folder}/{each}" for each in includes]
    lines += ["Include absent.conf", "Host *", "UserKnownHostsFile ${WHERE}/known", "User ada"]
    client.write("config", "\n".join(lines) + "\n")
    ask = client.ask_anew if anew else client.ask
    client.settle()
    before, calls = client.ask()
    assert (calls, client.ask()[1]) == (1, 0)
    change(client)
    after, calls = ask()
    assert (after, calls) == (client.fresh(), 1)
    assert after != before
    assert client.remembers()


def test_another_ssh_is_asked(client):
    assert client.remembers()
    client.becomes("exit 3")
    with pytest.raises(Unreachable):
        client.ask()


def test_what_may_have_changed_meanwhile_is_not_remembered(client):
    """A file that is as young as its own time stamp is exact."""
    client.settle()
    client.write("config", "Host *\n  User bob\n")
    assert [client.ask()[1], client.ask()[1]] == [1, 1]
    assert client.remembers()


# Never remembered

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
def test_what_follows_from_more_than_files_is_asked_each_time(client, text):
    client.write("parts/b/y.conf", "")
    client.write("exec.conf", 'Host q\nmatch user=x !exec "false"\n')
    client.write("config", text.format(folder=client.folder))
    assert not client.remembers("localhost")
    assert client.ask("localhost")[0] == client.fresh("localhost")


@pytest.mark.parametrize(
    "line",
    ["Match localnetwork 10.0.0.0/8", " MATCH host x\tLocalNetwork=1.2.3.4/5", 'match "exec" x'],
)
def test_every_spelling_of_what_no_file_tells_is_known(line):
    """Also where this ssh is too old for it."""
    assert sources.FLEETING.search(f"Host a\n{line}\n")
    assert not sources.FLEETING.search(f"# {line}\nHost exec\n  LocalCommand {line}\nMatch all\n")


def test_an_ssh_that_does_not_name_its_files_is_asked_each_time(client):
    client.becomes(f'exec {REAL} "$@" 2>/dev/null')
    assert not client.remembers()
    assert client.ask()[0] == client.fresh()


@pytest.mark.parametrize("also", ["", f'{REAL} -v "$@" >&2; '], ids=["instead", "besides"])
def test_an_ssh_that_reads_another_file_is_asked_each_time(client, also):
    other = client.write("other", "Host *\n  Port 99\n")
    client.becomes(f"{also}exec {REAL} -v -F {other} -G a")
    assert not client.remembers()
    assert client.ask()[0].port == 99


# What is kept may be anything


def broken(data):
    def spoil(file):
        file.write_bytes(data)

    return spoil


def torn(file):
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


SPOILT = {
    "empty": broken(b""),
    "bytes": broken(bytes(range(256))),
    "a list": broken(b"[1, 2]\n[3, 4, 5]\n"),
    "a number": broken(b"7\n7\n"),
    "a word": broken(b'"word"\n'),
    "deep": broken(b"[" * 100_000),
    **{
        spoil.__name__: spoil for spoil in (torn, others_may_write, another_users, a_link, a_folder)
    },
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_file_that_cannot_be_trusted_is_as_none(client, spoil):
    assert client.remembers()
    (file,) = client.cache.iterdir()
    spoil(file)
    assert client.ask_anew() == (client.fresh(), 1)


def test_lines_that_make_no_sense_are_passed_over(client):
    assert client.remembers()
    (file,) = client.cache.iterdir()
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([head, "7", "{}", '["x", "y"]', "[[], [], []]", *lines]) + "\n")
    assert client.ask_anew()[1] == 0


@pytest.mark.parametrize("place", ["cache", "cache/tfdeploy/ssh-config"])
def test_a_cache_that_cannot_be_written_costs_a_question(client, place):
    client.write(place, "in the way")
    client.settle()
    assert client.ask_anew() == (client.fresh(), 1)
    assert client.ask_anew()[1] == 1


@pytest.mark.parametrize("place", ["cache", "cache/tfdeploy/ssh-config"])
def test_root_leaves_nothing_in_the_home_of_another(client, place):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    folder = client.folder / place
    folder.mkdir(parents=True)
    os.chown(folder, 65534, -1)
    client.settle()
    assert client.ask() == (client.fresh(), 1)
    assert list(folder.iterdir()) == []


def test_what_nobody_used_for_long_is_deleted(client):
    old, young = client.cache / "old.jsonl", client.cache / "young.jsonl"
    client.write(old, "")
    client.write(young, "")
    os.utime(old, (time.time() - 40 * 86400,) * 2)
    assert client.remembers()
    assert (old.exists(), young.exists()) == (False, True)


# What can't be asked


def test_an_error_of_ssh_is_told_in_its_own_words_alone(client):
    client.write("config", "Include more.conf\nHost *\n  Nonsense yes\n")
    done = subprocess.run([REAL, "-F", client.config, "-G", "a"], capture_output=True, text=True)
    with pytest.raises(Unreachable) as error:
        client.ask()
    assert error.value.message == f"ssh can't use its configuration: {done.stderr.strip()}"


def test_an_error_is_not_remembered(client):
    assert client.remembers()
    client.write("config", "Nonsense yes\n")
    for _ in range(2):
        with pytest.raises(Unreachable):
            client.ask()
    client.write("config", "Host *\n  User bob\n")
    assert client.ask()[0].user == "bob"


def test_no_ssh_at_all_says_what_to_install(client, monkeypatch):
    monkeypatch.setenv("PATH", str(client.folder))
    with pytest.raises(Unreachable, match="not installed"):
        client.ask()
