"""What living hosts answer is shown while a host that is silent is still waited for."""

from __future__ import annotations

import os
import pty
import re
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from support import command_line
from support.ports import ADDRESS, free_ports
from support.projects import Project, environment, without_tensorflow
from support.sshd import write_ssh_config

from tfdeploy.transport.daemon import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


class MuteHost:
    """A port that accepts connections and never says anything."""

    def __init__(self) -> None:
        self._listener = socket.create_server((ADDRESS, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(4096):
                pass


@pytest.fixture
def mute() -> Iterator[MuteHost]:
    host = MuteHost()
    yield host
    host.close()


class Site:
    """A project on three hosts; `lose` replaces the third by one that is mute."""

    def __init__(self, folder, keys, sshds) -> None:
        self._folder, self._keys, self._sshds = folder, keys, sshds
        self._known_hosts = folder / "known_hosts"
        self._known_hosts.write_text("".join(each.known_hosts_line for each in sshds.values()))
        self._write_config(sshds["three"].entry())
        hosts, python = {}, without_tensorflow(folder / "python")
        for name, job in {"one": "ps", "two": "workers", "three": "workers"}.items():
            common = {"address": ADDRESS, "python": python, "ports": free_ports(2)}
            hosts[name] = {"directory": str(folder / "hosts" / name), **common, job: 1}
        top = {"ssh_config": str(folder / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
        self.project = Project(folder / "project", hosts, top, flags=["--steps=3", "--hold"])

    def lose(self, mute: MuteHost) -> None:
        self._write_config({"HostName": ADDRESS, "Port": str(mute.port)})

    def _write_config(self, third: dict[str, str]) -> None:
        entries = {name: self._sshds[name].entry() for name in ("one", "two")} | {"three": third}
        write_ssh_config(self._folder / "ssh_config", self._keys, self._known_hosts, entries)


@pytest.fixture
def site(tmp_path, keys, sshds) -> Iterator[Site]:
    site = Site(tmp_path, keys, sshds)
    yield site
    site.project.end()
    locate.stop_daemons()


@contextmanager
def running(project: Project, command: str, *, terminal: bool) -> Iterator[int]:
    """Run a command; yield a descriptor with all that it prints, on a terminal or in a pipe."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    env = environment(project.folder) | {"COLUMNS": "160"}
    with open(os.devnull) as nothing:
        streams = nothing.fileno(), writing, writing
        process = command_line.start(command, cwd=project.folder, env=env, streams=streams)
    os.close(writing)
    yield reading
    os.close(reading)
    process.wait()


def read_until(descriptor: int, pattern: str) -> str:
    """Return what was printed until the pattern matches, or until the end."""
    output = ""
    with suppress(OSError):  # the end of a terminal
        while not re.search(pattern, output) and (chunk := os.read(descriptor, 4096)):
            output += chunk.decode()
    return output


def before(shown: str, output: str) -> str:
    """Return what was printed before `shown`, and what matches it."""
    found = re.search(shown, output)
    assert found, output
    return output[: found.end()]


def test_push_shows_the_living_while_a_silent_host_is_waited_for(site, mute):
    site.lose(mute)
    shown = r"waiting for host three"
    with running(site.project, "push", terminal=False) as printed:
        output = read_until(printed, shown)
        assert "three: " not in before(shown, output)
        assert "three: " in output + read_until(printed, "three: no SSH|three: the ")


def test_status_and_stop_show_the_living_while_a_silent_host_is_waited_for(site, mute):
    site.project.ok("start", "--push")
    site.lose(mute)
    for command, shown in {
        "status": r"ps:0 .*READY[^$]*worker:0 .*READY[^$]*waiting for host three",
        "stop": r"STOPPED +worker:0[^$]*waiting for host three",
    }.items():
        with running(site.project, command, terminal=True) as printed:
            output = read_until(printed, shown)
            first = before(shown, output)
            assert "three: " not in first
            rest = output[len(first) :] + read_until(printed, "three: no SSH|three: the ")
            assert "three: " in rest
            assert "worker:0 " not in rest  # what was shown is not shown again
