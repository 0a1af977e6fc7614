"""What a command costs: connections, processes on the host, bytes, imported modules.

The resulting times are measured by `make bench`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from support.ports import ADDRESS, free_ports
from support.projects import Project, environment
from support.sshd import Keys, Sshd, public, write_ssh_config

from tfdeploy.transport.daemon import locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

FILES = 200
MEGA = 1_000_000


@dataclass
class CountingProxy:
    """A proxy to an sshd that counts connections and bytes."""

    sshd: Sshd
    port: int = field(default_factory=lambda: free_ports(1)[0])
    connections: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server((ADDRESS, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection((ADDRESS, self.sshd.port))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


@dataclass
class Cost:
    connections: int
    pythons: int
    bytes: int


@dataclass
class CountedProject:
    """A project with one host, whose Python writes a line each time the agent is started."""

    project: Project
    proxy: CountingProxy
    pythons: Path

    def cost(self, *words: str) -> Cost:
        before = self._now()
        self.project.ok(*words)
        after = self._now()
        return Cost(*(b - a for a, b in zip(before, after, strict=True)))

    def _now(self) -> tuple[int, int, int]:
        started = self.pythons.read_text().count("serve") if self.pythons.exists() else 0
        return self.proxy.connections, started, self.proxy.bytes


@pytest.fixture
def proxy(base: Path, keys: Keys) -> Iterator[CountingProxy]:
    sshd = Sshd(base, keys)
    proxy = CountingProxy(sshd)
    yield proxy
    proxy.close()
    sshd.stop()


@pytest.fixture(params=[0, 300], ids=["no daemon", "daemon"])
def counted(
    request: pytest.FixtureRequest, tmp_path: Path, keys: Keys, proxy: CountingProxy
) -> Iterator[CountedProject]:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{ADDRESS}]:{proxy.port} {public(keys.host)}")
    write_ssh_config(
        tmp_path / "ssh_config",
        keys,
        known_hosts,
        {"far": {"HostName": ADDRESS, "Port": str(proxy.port)}},
    )
    pythons, python = tmp_path / "pythons", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {pythons}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    host = {
        "address": ADDRESS, "python": str(python), "directory": str(tmp_path / "far"),
        "ps": 1, "workers": 2, "ports": free_ports(4),
    }  # fmt: skip
    top = {
        "ssh_config": str(tmp_path / "ssh_config"),
        "keep_connections_s": request.param,
        "source": {"exclude": ["/*.toml"]},
    }
    project = Project(tmp_path / "project", {"far": host}, top)
    for number in range(FILES):
        (project.folder / f"module_{number}.py").write_bytes(os.urandom(10_000))
    yield CountedProject(project, proxy, pythons)
    project.end()
    locate.stop_daemons()


def test_each_command_costs_at_most_one_connection_and_one_process_on_a_host(counted):
    by_daemon = counted.project.top["keep_connections_s"] > 0
    first = counted.cost("push")
    assert first.connections == 1
    assert first.bytes < FILES * 10_000 * 1.1 + MEGA
    once = Cost(0, 0, 0) if by_daemon else Cost(1, 1, 0)
    for words in (["push"], ["start"], ["status"], ["logs"], ["stop"], ["runs"]):
        cost = counted.cost(*words)
        assert (cost.connections, cost.pythons) == (once.connections, once.pythons), words
        assert cost.bytes < 100_000, words


def test_only_changed_files_are_sent(counted):
    counted.project.ok("push")
    (counted.project.folder / "module_7.py").write_bytes(os.urandom(10_000))
    manifest_bytes = FILES * 150  # the names and hashes of all files
    assert counted.cost("push").bytes < 10_000 + manifest_bytes + 20_000


def imported_modules(project: Project, *words: str) -> set[str]:
    code = (
        "import sys; from tfdeploy.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('modules', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=project.folder, env=environment(project.folder),
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1].split()
    assert last[0] == "modules", done.stderr
    return {name.split(".")[0] for name in last}


@pytest.mark.parametrize("words", [["--help"], ["plan"]])
def test_a_command_that_needs_no_host_imports_no_ssh(counted, words):
    heavy = {"paramiko", "fabric", "invoke", "cryptography", "tensorflow", "grpc", "numpy"}
    assert not imported_modules(counted.project, *words) & heavy


def test_a_command_that_uses_the_connection_daemon_imports_no_ssh(counted):
    counted.project.ok("push")
    loaded = imported_modules(counted.project, "push") & {
        "paramiko",
        "fabric",
        "invoke",
        "cryptography",
    }
    assert bool(loaded) == (counted.project.top["keep_connections_s"] == 0)
