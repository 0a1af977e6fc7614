"""The connection daemon: connections outlive commands, are private, and never fail a command."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.builders import NOBODY_UID
from support.projects import toml
from support.sshd import Sshd, alive, write_ssh_config
from support.waiting import STILL_S, until

from tfdeploy.config import inventory
from tfdeploy.errors import AuthenticationFailed, HostKeyRefused, Unreachable
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.transport.daemon import client, ipc, locate
from tfdeploy.transport.daemon.client import DaemonTransport
from tfdeploy.transport.ssh import config as ssh_config
from tfdeploy.transport.ssh import connection
from tfdeploy.transport.ssh.channels import SshStream
from tfdeploy.transport.ssh.config import resolve_route
from tfdeploy.transport.ssh.transport import SshTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.config.inventory import Inventory

ECHO_LOOP = ["sh", "-c", "while read line; do echo $$ $line; done"]
SHOW_CONNECTION = ["sh", "-c", "echo $SSH_CONNECTION"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Controller:
    """A controller with one host, and a daemon with its own runtime folder."""

    def __init__(self, folder: Path, runtime: Path, sshd: Sshd) -> None:
        self.folder, self.runtime, self.sshd = folder, runtime, sshd
        self.write_ssh_config()

    def write_ssh_config(self, **entry: str) -> None:
        known_hosts = self.folder / "known_hosts"
        known_hosts.write_text(self.sshd.known_hosts_line)
        config = self.folder / "ssh_config"
        write_ssh_config(config, self.sshd.keys, known_hosts, {"one": self.sshd.entry(**entry)})

    def inventory(self, **top: object) -> Inventory:
        file = self.folder / "hosts.toml"
        top = {"project": "p", "ssh_config": str(self.folder / "ssh_config"), **top}
        file.write_text(toml({**top, "training": {"command": "true"}, "hosts": {"one": {"ps": 1}}}))
        return inventory.load(file)

    def transport(self, **top: object) -> DaemonTransport:
        """Return a new transport, as the next command has it."""
        ssh_config._query.cache_clear()  # its answers are those of a process
        inventory = self.inventory(**top)
        return DaemonTransport(inventory.host("one"), inventory)

    def connection_of_command(self, **top: object) -> bytes:
        """Return the connection that a command uses."""
        return self.transport(**top).run(SHOW_CONNECTION, timeout_s=600).stdout

    def use_and_park(self, **top: object) -> bytes:
        """Return the pid of a command that answers a line, and park the command."""
        stream = self.transport(**top).stream(ECHO_LOOP)
        pid = ask_pid(stream)
        stream.park()
        return pid

    @property
    def daemons(self) -> list[int]:
        """Return the pids of the daemons of this runtime folder."""
        processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        runtime = str(self.runtime)
        pids = [int(entry.name) for entry in processes if runtime in daemon_command_line(entry)]
        return [pid for pid in pids if alive(pid)]

    def drop_connections(self) -> None:
        """Kill the connections, and wait until the daemon has closed its ends of them."""
        self.sshd.drop_connections()
        until(lambda: not client_sockets(self.sshd.port), "the daemon to notice the loss")

    @property
    def socket(self) -> Path:
        (path,) = self.runtime.glob("tfdeploy/*.sock")
        return path


def client_sockets(port: int) -> list[str]:
    """Return the sockets that are, or were until the other end closed, connected to a port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established, close_wait = "01", "08"
    return [row[1] for row in rows
            if row[2].endswith(f":{port:04X}") and row[3] in (established, close_wait)]  # fmt: skip


def daemon_command_line(process: Path) -> str:
    try:
        text = (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return text if "transport.daemon.server" in text else ""


def ask_pid(stream) -> bytes:
    """Return the pid of the command that answers."""
    stream.send(b"who\n")
    return stream.read(20).split()[0]


@pytest.fixture
def sshd(tmp_path: Path, keys) -> Iterator[Sshd]:
    server = Sshd(tmp_path, keys)
    yield server
    server.stop()


@pytest.fixture
def controller(tmp_path: Path, tmp_path_factory, monkeypatch, sshd) -> Iterator[Controller]:
    runtime = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    # On a busy machine a client that gives up a slow daemon would connect by itself.
    monkeypatch.setattr(locate, "HELLO_TIMEOUT_S", STILL_S)
    monkeypatch.setattr(locate, "START_TIMEOUT_S", STILL_S)
    monkeypatch.setattr(client, "PARK_TIMEOUT_S", STILL_S)
    test_controller = Controller(tmp_path, runtime, sshd)
    yield test_controller
    locate.stop_daemons()
    for pid in test_controller.daemons:
        os.kill(pid, signal.SIGKILL)


# What stays open


def test_the_next_command_uses_the_same_connection(controller):
    assert controller.connection_of_command() == controller.connection_of_command() != b""
    assert len(controller.daemons) == 1


def test_a_parked_command_serves_the_next_client(controller):
    assert controller.use_and_park() == controller.use_and_park()


@pytest.mark.parametrize("run_s", [None, 60.0])
def test_a_client_that_leaves_before_its_command_starts_leaves_none_behind(controller, run_s):
    """For example after Ctrl-C during the handshake."""
    inventory = controller.inventory()
    argv = ["sh", "-c", f"cat; : {controller.folder}"]  # runs until its input ends
    route = resolve_route(inventory.host("one"), inventory).to_json()
    request = {"route": route, "argv": argv, "run_s": run_s, "keep_s": 60}
    for _ in range(3):
        frames = locate.connect()
        frames.send(ipc.REQUEST, json.dumps(request).encode())
        frames.close()
    controller.connection_of_command()  # now the daemon has connected
    until(lambda: running(argv) == [], "the end of the commands")


def running(argv: list[str]) -> list[str]:
    command = "\0".join(argv).encode() + b"\0"
    return [entry.name for entry in Path("/proc").glob("[0-9]*") if command_line(entry) == command]


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_parked_command_outlives_its_reader_thread(controller):
    first = controller.use_and_park()
    threads = Path(f"/proc/{controller.daemons[0]}/task")
    idle_threads = 5  # main, the one that closes what is unused, Paramiko's, and recent clients'
    until(lambda: len(os.listdir(threads)) < idle_threads, "the end of its reader")
    assert controller.use_and_park() == first


def test_a_command_serves_one_client_at_a_time(controller):
    first, second = (controller.transport().stream(ECHO_LOOP) for _ in range(2))
    assert ask_pid(first) != ask_pid(second)
    first.close()
    second.close()


def test_at_most_two_commands_stay_parked(controller):
    streams = [controller.transport().stream(ECHO_LOOP) for _ in range(4)]
    pids = [int(ask_pid(stream)) for stream in streams]
    for stream in streams:
        stream.park()
    until(
        lambda: [alive(pid) for pid in pids] == [False, False, True, True],
        "the end of the older two",
    )


def command(controller: Controller, code: str) -> subprocess.Popen[str]:
    """Start another process with a transport."""
    controller.inventory()
    setup = (
        "import sys, tfdeploy.config.inventory as inventory\n"
        "from pathlib import Path\n"
        "from tfdeploy.transport.daemon.client import DaemonTransport\n"
        "loaded = inventory.load(Path(sys.argv[1]))\n"
        "transport = DaemonTransport(loaded.host('one'), loaded)\n"
    )
    words = [sys.executable, "-c", setup + code, controller.folder / "hosts.toml", *ECHO_LOOP]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)


def test_a_command_that_is_not_parked_ends_with_its_client(controller):
    code = (
        "stream = transport.stream(sys.argv[2:])\n"
        "stream.send(b'who\\n')\n"
        "print(stream.read(20).split()[0].decode(), 'paramiko' in sys.modules, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with command(controller, code) as process:
        pid, has_paramiko = process.stdout.readline().split()
        assert alive(int(pid))
        process.kill()
    until(lambda: not alive(int(pid)), "the end of the command")
    assert has_paramiko == "False"


def test_a_run_ends_with_its_client(controller):
    file = controller.folder / "pid"
    script = f"echo $$ > {file}; while echo on; do sleep 0.05; done"
    with command(controller, f"transport.run(['sh', '-c', {script!r}], timeout_s=600)") as process:
        pid = int(until(lambda: file.exists() and file.read_text(), "its start"))
        process.kill()
    until(lambda: not alive(pid), "the end of the command")


def test_other_settings_open_another_connection(controller):
    first = controller.use_and_park()
    controller.write_ssh_config(User="nobody-of-that-name")
    with pytest.raises(AuthenticationFailed, match="one: "):
        controller.use_and_park()
    controller.write_ssh_config()
    assert controller.use_and_park() == first


def test_the_daemon_checks_host_keys(controller):
    (controller.folder / "known_hosts").write_text("")
    with pytest.raises(HostKeyRefused, match=r"one: its host key is unknown(.|\n)*pass --accept"):
        controller.use_and_park()


def test_a_fleet_that_accepts_new_keys_bypasses_the_daemon(controller):
    (controller.folder / "known_hosts").write_text("")
    with Fleet(controller.inventory(), accept_new=True) as fleet:
        assert fleet.agents["one"].transport.run(["true"], timeout_s=600).exit == 0
    assert controller.daemons == []


@pytest.mark.parametrize(("seconds", "kind"), [(0, SshTransport), (5, DaemonTransport)])
def test_keep_connections_s_selects_the_transport(controller, seconds, kind):
    with Fleet(controller.inventory(keep_connections_s=seconds)) as fleet:
        assert isinstance(fleet.agents["one"].transport._chosen(), kind)


def test_an_unused_connection_is_closed(controller):
    pid = int(controller.use_and_park(keep_connections_s=0.5))
    until(lambda: not alive(pid), "the end of the command")
    until(lambda: not controller.sshd.connections, "the end of the connection")


# What is lost between two commands


def test_a_lost_connection_is_opened_again(controller):
    first = controller.use_and_park()
    controller.drop_connections()
    assert controller.use_and_park() != first


def test_a_parked_command_that_exited_is_started_again(controller):
    first = controller.use_and_park()
    os.kill(int(first), signal.SIGKILL)
    until(lambda: not Path(f"/proc/{int(first)}").exists(), "sshd to notice its end")
    assert controller.use_and_park() != first


@pytest.mark.slow
def test_a_silent_connection_is_opened_again(controller, monkeypatch):
    """As after a laptop slept: only the controller believes that it is open."""
    first = controller.use_and_park()
    stopped = [pid for pid in controller.sshd.connections if pid != int(first)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: seconds_since(first) > connection.ALIVE_CACHE_S, "the end of the cached answer")
    assert controller.use_and_park() != first
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)


def test_a_host_that_is_gone_is_named_in_the_error(controller):
    controller.use_and_park()
    controller.sshd.stop()
    until(lambda: not client_sockets(controller.sshd.port), "the daemon to notice the loss")
    with pytest.raises(Unreachable, match=r"one: no SSH connection"):
        controller.use_and_park()


def test_a_stream_reports_that_its_connection_was_lost(controller):
    stream = controller.transport().stream(ECHO_LOOP)
    ask_pid(stream)
    controller.sshd.drop_connections()
    with pytest.raises(Unreachable, match=r"one: "):
        stream.read(20)


def seconds_since(pid: bytes) -> float:
    start_ticks = int(Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - start_ticks / os.sysconf("SC_CLK_TCK")


# The daemon itself


def test_several_first_commands_start_one_daemon(controller):
    inventory = controller.inventory()
    connect = [
        sys.executable,
        "-c",
        "from tfdeploy.transport.daemon import locate; locate.connect()",
    ]
    processes = [subprocess.Popen(connect) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        transports = [DaemonTransport(inventory.host("one"), inventory) for _ in range(8)]
        outputs = pool.map(lambda each: each.run(SHOW_CONNECTION, timeout_s=600).stdout, transports)
        connections = set(outputs)
    assert [process.wait() for process in processes] == [0] * 4
    until(lambda: len(controller.daemons) == 1, "the end of the daemons that came too late")
    assert connections == {controller.connection_of_command()}


def test_commands_that_exit_at_once_do_not_cost_the_connection(controller):
    """The end of a command's input must not follow the end of its channel: sshd disconnects."""
    inventory = controller.inventory()
    transports = [DaemonTransport(inventory.host("one"), inventory) for _ in range(8)]
    with ThreadPoolExecutor(len(transports)) as pool:
        connections = [*pool.map(
            lambda each: each.run(SHOW_CONNECTION, timeout_s=600).stdout, transports * 25
        )]  # fmt: skip
    # A busy sshd may need more than one. A command takes the first that is left.
    assert controller.connection_of_command() == connections[0]


def test_a_second_daemon_does_not_replace_the_first(controller):
    first, daemons = controller.use_and_park(), controller.daemons
    read_end, write_end = os.pipe()
    locate._spawn(str(controller.socket), write_end)
    os.close(write_end)
    assert select.select([read_end], [], [], STILL_S)[0]  # it has exited, or listens
    os.close(read_end)
    assert controller.use_and_park() == first
    until(lambda: controller.daemons == daemons, "the end of the second daemon")


def test_a_killed_daemon_costs_only_the_current_stream(controller):
    stream = controller.transport().stream(ECHO_LOOP)
    first = ask_pid(stream)
    os.kill(controller.daemons[0], signal.SIGKILL)
    with pytest.raises(Unreachable, match="one: the connection was lost"):
        stream.read(20)
    until(lambda: not alive(int(first)), "the end of the command")
    assert controller.use_and_park() != first

    def is_kept():
        return controller.use_and_park() == controller.use_and_park()

    until(is_kept, "a new daemon: on a busy machine the first command does not wait for it")


@pytest.mark.slow
def test_a_daemon_that_does_not_answer_is_bypassed(controller, monkeypatch):
    controller.use_and_park()
    monkeypatch.setattr(locate, "HELLO_TIMEOUT_S", 0.5)
    os.kill(controller.daemons[0], signal.SIGSTOP)
    stream = controller.transport().stream(ECHO_LOOP)
    assert isinstance(stream, SshStream)
    assert ask_pid(stream)
    stream.close()


def test_the_daemon_exits_when_its_socket_is_deleted(controller):
    controller.use_and_park()
    (pid,) = controller.daemons
    controller.socket.unlink()
    until(lambda: not alive(pid), "its end")


def test_stop_daemons_ends_the_daemon_and_its_commands(controller):
    pid = int(controller.use_and_park())
    locate.stop_daemons()
    assert controller.daemons == []
    until(lambda: not alive(pid), "the end of the command")
    assert list(controller.runtime.glob("tfdeploy/*.sock")) == []


def test_the_daemon_inherits_nothing_from_the_command_that_started_it(controller):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    controller.use_and_park()
    os.close(write)
    assert select.select([read], [], [], STILL_S) == ([read], [], [])  # the end of file
    os.close(read)
    assert os.getsid(controller.daemons[0]) == controller.daemons[0]
    assert (controller.runtime / "tfdeploy/keeper.log").read_text() == ""


# Other users


@as_root
def test_a_runtime_folder_of_another_user_is_not_used(controller, tmp_path, monkeypatch):
    """XDG_RUNTIME_DIR after `su` and `sudo -E`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.chown(controller.runtime, NOBODY_UID, NOBODY_UID)
    assert locate.socket_folder() == tmp_path / f"tfdeploy-{os.geteuid()}"
    assert list(controller.runtime.iterdir()) == []


def test_the_folder_of_the_socket_is_private(controller):
    controller.use_and_park()
    assert stat.S_IMODE((controller.runtime / "tfdeploy").stat().st_mode) == 0o700


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def of_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY_UID, NOBODY_UID)


def a_link(folder: Path) -> None:
    folder.with_name("elsewhere").mkdir(mode=0o700)
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "make_folder",
    [open_to_all, a_link, pytest.param(of_another, marks=as_root)],
    ids=lambda f: f.__name__,
)
def test_a_folder_that_others_can_change_has_no_daemon(controller, make_folder):
    make_folder(controller.runtime / "tfdeploy")
    assert controller.connection_of_command() != b""
    assert controller.daemons == []


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY_UID)
    try:
        yield
    finally:
        os.seteuid(0)


@as_root
def test_the_daemon_closes_the_connection_of_another_user(controller):
    controller.use_and_park()
    path = controller.socket
    path.chmod(0o777)
    path.parent.chmod(0o711)
    folder = os.open(path.parent, os.O_PATH)  # so that the folders above do not matter
    with socket.socket(socket.AF_UNIX) as stranger:
        with as_nobody():
            stranger.connect(f"/proc/self/fd/{folder}/{path.name}")
        stranger.settimeout(20)
        assert stranger.recv(9) == b""
    os.close(folder)
    path.parent.chmod(0o700)


@as_root
def test_a_daemon_of_another_user_is_bypassed(controller):
    controller.use_and_park()
    path = controller.socket
    locate.stop_daemons()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with as_nobody():
            listener.listen(8)  # SO_PEERCRED is the user who calls listen()
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(greet_as_daemon, listener)
            stream = controller.transport().stream(ECHO_LOOP)
            assert reply.result() == b""
    assert isinstance(stream, SshStream)
    stream.close()


def greet_as_daemon(listener: socket.socket) -> bytes:
    """Return what a client sends after the greeting of a daemon."""
    sock, _ = listener.accept()
    with sock, suppress(OSError):
        sock.sendall(ipc.HEADER.pack(ipc.HELLO, 0))
        return sock.recv(9)
    return b""
