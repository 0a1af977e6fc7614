"""Connections outlive a command, for whom they belong to, and a command never fails for it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from unit.made import NOBODY

from tfdeploy import inventory
from tfdeploy.errors import AuthenticationFailed, HostKeyRefused, Unreachable
from tfdeploy.fleet import Fleet
from tfdeploy.transport import frames, link, reaching
from tfdeploy.transport.kept import KeptTransport
from tfdeploy.transport.ssh import SshStream, SshTransport
from tfdeploy.transport.way import way

from .projects import toml
from .sshd import Sshd, alive, until, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.inventory import Inventory

TALKER = ["sh", "-c", "while read line; do echo $$ $line; done"]
WHENCE = ["sh", "-c", "echo $SSH_CONNECTION"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


class Home:
    """One host, and this user's keeper in a folder of the test's own."""

    def __init__(self, folder: Path, runtime: Path, sshd: Sshd) -> None:
        self.folder, self.runtime, self.sshd = folder, runtime, sshd
        self.knows()

    def knows(self, **entry: str) -> None:
        known = self.folder / "known_hosts"
        known.write_text(self.sshd.known)
        config = self.folder / "ssh_config"
        write_ssh_config(config, self.sshd.keys, known, {"one": self.sshd.entry(**entry)})

    def inventory(self, **top: object) -> Inventory:
        file = self.folder / "hosts.toml"
        top = {"project": "p", "ssh_config": str(self.folder / "ssh_config"), **top}
        file.write_text(toml({**top, "training": {"command": "true"}, "hosts": {"one": {"ps": 1}}}))
        return inventory.load(file)

    def transport(self, **top: object) -> KeptTransport:
        """As the next command has it."""
        known = self.inventory(**top)
        return KeptTransport(known.host("one"), known)

    def whence(self, **top: object) -> bytes:
        """The connection that a command comes by."""
        return self.transport(**top).run(WHENCE, timeout_s=30).stdout

    def talked(self, **top: object) -> bytes:
        """Who answers a line, given up to the next that asks."""
        stream = self.transport(**top).stream(TALKER)
        said = asked(stream)
        stream.keep()
        return said

    @property
    def keepers(self) -> list[int]:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()
                and str(self.runtime) in words(entry) and alive(int(entry.name))]  # fmt: skip

    @property
    def socket(self) -> Path:
        (found,) = self.runtime.glob("tfdeploy/*.sock")
        return found


def words(process: Path) -> str:
    try:
        text = (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return text if "transport.keeper" in text else ""


def asked(stream) -> bytes:
    """The pid that answers."""
    stream.send(b"who\n")
    return stream.read(20).split()[0]


@pytest.fixture
def sshd(tmp_path: Path, keys) -> Iterator[Sshd]:
    made = Sshd(tmp_path, keys)
    yield made
    made.stop()


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory, monkeypatch, sshd) -> Iterator[Home]:
    runtime = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made = Home(tmp_path, runtime, sshd)
    yield made
    reaching.hang_up()
    for pid in made.keepers:
        os.kill(pid, signal.SIGKILL)


# What is kept


def test_the_next_command_comes_by_the_same_connection(home):
    assert home.whence() == home.whence() != b""
    assert len(home.keepers) == 1


def test_a_command_that_was_given_up_goes_on_with_the_next(home):
    assert home.talked() == home.talked()


@pytest.mark.parametrize("run_s", [None, 60.0])
def test_who_goes_before_a_command_has_begun_leaves_none_behind(home, run_s):
    """Ctrl-C while a host is connected to."""
    known = home.inventory()
    argv = ["sh", "-c", f"cat; : {home.folder}"]  # until its input ends
    leads = way(known.host("one"), known).to_json()
    body = {"way": leads, "argv": argv, "run_s": run_s, "keep_s": 60}
    for _ in range(3):
        asking = reaching.reached()
        asking.send(frames.ASK, json.dumps(body).encode())
        asking.close()
    home.whence()  # the host was reached
    until(lambda: running(argv) == [], "the end of what nobody waits for")


def running(argv: list[str]) -> list[str]:
    command = "\0".join(argv).encode() + b"\0"
    return [entry.name for entry in Path("/proc").glob("[0-9]*") if shown(entry) == command]


def shown(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_it_goes_on_long_after_nobody_reads_it_any_more(home):
    first = home.talked()
    threads = Path(f"/proc/{home.keepers[0]}/task")
    at_rest = 5  # main, the one that looks after all, Paramiko's, and those that were just busy
    until(lambda: len(os.listdir(threads)) < at_rest, "the end of its reader")
    assert home.talked() == first


def test_one_that_is_talked_with_is_nobody_elses(home):
    first, second = (home.transport().stream(TALKER) for _ in range(2))
    assert asked(first) != asked(second)
    first.close()
    second.close()


def test_two_wait_at_most(home):
    streams = [home.transport().stream(TALKER) for _ in range(4)]
    pids = [int(asked(stream)) for stream in streams]
    for stream in streams:
        stream.keep()
    until(lambda: [alive(pid) for pid in pids] == [False, False, True, True], "the older two's end")


def command(home: Home, code: str) -> subprocess.Popen[str]:
    """Another command, which has a transport."""
    home.inventory()
    begin = (
        "import sys, tfdeploy.inventory as inventory\n"
        "from pathlib import Path\n"
        "from tfdeploy.transport.kept import KeptTransport\n"
        "known = inventory.load(Path(sys.argv[1]))\n"
        "transport = KeptTransport(known.host('one'), known)\n"
    )
    words = [sys.executable, "-c", begin + code, home.folder / "hosts.toml", *TALKER]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)


def test_a_command_that_is_not_given_up_ends_with_who_began_it(home):
    code = (
        "stream = transport.stream(sys.argv[2:])\n"
        "stream.send(b'who\\n')\n"
        "print(stream.read(20).split()[0].decode(), 'paramiko' in sys.modules, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with command(home, code) as process:
        pid, has_paramiko = process.stdout.readline().split()
        assert alive(int(pid))
        process.kill()
    until(lambda: not alive(int(pid)), "the end of the talker")
    assert has_paramiko == "False"


def test_a_run_ends_with_who_wanted_it(home):
    file = home.folder / "pid"
    script = f"echo $$ > {file}; while echo on; do sleep 0.05; done"
    with command(home, f"transport.run(['sh', '-c', {script!r}], timeout_s=60)") as process:
        pid = int(until(lambda: file.exists() and file.read_text(), "its begin"))
        process.kill()
    until(lambda: not alive(pid), "the end of the talker")


def test_other_settings_are_another_connection(home):
    first = home.talked()
    home.knows(User="nobody-of-that-name")
    with pytest.raises(AuthenticationFailed, match="one: "):
        home.talked()
    home.knows()
    assert home.talked() == first


def test_a_host_key_is_checked_where_a_connection_is_made(home):
    (home.folder / "known_hosts").write_text("")
    with pytest.raises(HostKeyRefused, match=r"one: its host key is unknown(.|\n)*say --accept"):
        home.talked()


def test_what_trusts_new_hosts_goes_alone(home):
    (home.folder / "known_hosts").write_text("")
    with Fleet(home.inventory(), accept_new=True) as fleet:
        assert fleet.agents["one"].transport.run(["true"], timeout_s=30).exit == 0
    assert home.keepers == []


@pytest.mark.parametrize(("seconds", "kind"), [(0, SshTransport), (5, KeptTransport)])
def test_hosts_toml_says_for_how_long(home, seconds, kind):
    with Fleet(home.inventory(keep_connections_s=seconds)) as fleet:
        assert isinstance(fleet.agents["one"].transport, kind)


def test_what_nobody_uses_is_closed(home):
    pid = int(home.talked(keep_connections_s=0.5))
    until(lambda: not alive(pid), "the end of the talker")
    until(lambda: not home.sshd.connections, "the end of the connection")


# What is lost meanwhile


def test_a_lost_connection_is_made_anew(home):
    first = home.talked()
    home.sshd.hang_up()
    assert home.talked() != first


def test_a_command_that_ended_meanwhile_is_begun_anew(home):
    first = home.talked()
    os.kill(int(first), signal.SIGKILL)
    until(lambda: not alive(int(first)), "its end")
    assert home.talked() != first


@pytest.mark.slow
def test_a_connection_that_fell_silent_is_made_anew(home, monkeypatch):
    """As after a laptop slept: it is there for us alone."""
    first = home.talked()
    stopped = [pid for pid in home.sshd.connections if pid != int(first)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: seconds_since(first) > link.SILENCE_S, "the time for which it is believed")
    assert home.talked() != first
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)


def test_a_host_that_is_gone_is_named(home):
    home.talked()
    home.sshd.stop()
    with pytest.raises(Unreachable, match=r"one: no SSH connection"):
        home.talked()


def test_a_stream_says_that_its_connection_was_lost(home):
    stream = home.transport().stream(TALKER)
    asked(stream)
    home.sshd.hang_up()
    with pytest.raises(Unreachable, match=r"one: "):
        stream.read(20)


def seconds_since(pid: bytes) -> float:
    began = int(Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - began / os.sysconf("SC_CLK_TCK")


# The keeper itself


def test_of_many_first_commands_one_begins_it(home):
    known = home.inventory()
    begin = [sys.executable, "-c", "from tfdeploy.transport import reaching as r; r.reached()"]
    processes = [subprocess.Popen(begin) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        made = [KeptTransport(known.host("one"), known) for _ in range(8)]
        said = set(pool.map(lambda each: each.run(WHENCE, timeout_s=30).stdout, made))
    assert [process.wait() for process in processes] == [0] * 4
    until(lambda: len(home.keepers) == 1, "the end of those that came too late")
    assert said == {home.whence()}


def test_one_that_comes_too_late_leaves_the_first_alone(home):
    first, keepers = home.talked(), home.keepers
    late, ready = os.pipe()
    reaching._spawn(str(home.socket), ready)
    os.close(ready)
    assert select.select([late], [], [], 20)[0]  # it has ended, or listens
    os.close(late)
    assert home.talked() == first
    until(lambda: home.keepers == keepers, "the end of the other")


def test_one_that_is_killed_costs_the_stream_and_no_more(home):
    stream = home.transport().stream(TALKER)
    first = asked(stream)
    os.kill(home.keepers[0], signal.SIGKILL)
    with pytest.raises(Unreachable, match="one: the connection was lost"):
        stream.read(20)
    until(lambda: not alive(int(first)), "the end of the talker")
    assert home.talked() == home.talked() != first


@pytest.mark.slow
def test_one_that_does_not_wake_is_done_without(home):
    home.talked()
    os.kill(home.keepers[0], signal.SIGSTOP)
    stream = home.transport().stream(TALKER)
    assert isinstance(stream, SshStream)
    assert asked(stream)
    stream.close()


def test_it_ends_with_its_socket(home):
    home.talked()
    (pid,) = home.keepers
    home.socket.unlink()
    until(lambda: not alive(pid), "its end")


def test_it_ends_at_a_word(home):
    pid = int(home.talked())
    reaching.hang_up()
    assert home.keepers == []
    until(lambda: not alive(pid), "the end of the talker")
    assert list(home.runtime.glob("tfdeploy/*.sock")) == []


def test_it_holds_nothing_of_who_began_it(home):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    home.talked()
    os.close(write)
    assert select.select([read], [], [], 5) == ([read], [], [])  # it has come to its end
    os.close(read)
    assert os.getsid(home.keepers[0]) == home.keepers[0]
    assert (home.runtime / "tfdeploy/keeper.log").read_text() == ""


# Whose it is


@as_root
def test_a_runtime_folder_of_somebody_else_is_left_alone(home, tmp_path, monkeypatch):
    """As `su` and `sudo -E` leave it."""
    monkeypatch.setattr(reaching.tempfile, "tempdir", str(tmp_path))
    os.chown(home.runtime, NOBODY, NOBODY)
    assert reaching.folder() == tmp_path / f"tfdeploy-{os.geteuid()}"
    assert list(home.runtime.iterdir()) == []


def test_its_folder_is_closed_to_others(home):
    home.talked()
    assert stat.S_IMODE((home.runtime / "tfdeploy").stat().st_mode) == 0o700


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def of_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)


def a_link(folder: Path) -> None:
    folder.with_name("elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "made", [open_to_all, a_link, pytest.param(of_another, marks=as_root)], ids=lambda f: f.__name__
)
def test_in_a_folder_that_others_made_there_is_no_keeper(home, made):
    made(home.runtime / "tfdeploy")
    assert home.whence() != b""
    assert home.keepers == []


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@as_root
def test_another_user_is_told_nothing(home):
    home.talked()
    path = home.socket
    path.chmod(0o777)
    path.parent.chmod(0o711)
    folder = os.open(path.parent, os.O_PATH)  # whatever lies above is no hindrance either
    with socket.socket(socket.AF_UNIX) as stranger:
        with as_nobody():
            stranger.connect(f"/proc/self/fd/{folder}/{path.name}")
        stranger.settimeout(20)
        assert stranger.recv(9) == b""
    os.close(folder)
    path.parent.chmod(0o700)


@as_root
def test_another_users_keeper_is_not_believed(home):
    home.talked()
    path = home.socket
    reaching.hang_up()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with as_nobody():
            listener.listen(8)  # from now on it is known as theirs
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(greeted, listener)
            stream = home.transport().stream(TALKER)
            assert told.result() == b""
    assert isinstance(stream, SshStream)
    stream.close()


def greeted(listener: socket.socket) -> bytes:
    """What they say to one who speaks as a keeper does."""
    sock, _ = listener.accept()
    with sock, suppress(OSError):
        sock.sendall(frames.HEAD.pack(frames.HELLO, 0))
        return sock.recv(9)
    return b""
