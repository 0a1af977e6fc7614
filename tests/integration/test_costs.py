"""What a command costs, in what can be counted: connections, processes on the host, bytes, threads,
modules. The times that follow from them are `make bench`'s."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tfdeploy.transport import reaching

from .projects import Project, environment
from .sshd import ADDRESS, Keys, Sshd, free_ports, public, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = 200
MEGA = 1_000_000


@dataclass
class Wire:
    """A way to an sshd on which connections and bytes are counted."""

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
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
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
class Counted:
    """A project with one host, whose Python writes a line each time it is started for the agent."""

    project: Project
    wire: Wire
    pythons: Path

    def cost(self, *words: str) -> Cost:
        before = self._now()
        self.project.ok(*words)
        after = self._now()
        return Cost(*(b - a for a, b in zip(before, after, strict=True)))

    def _now(self) -> tuple[int, int, int]:
        started = self.pythons.read_text().count("serve") if self.pythons.exists() else 0
        return self.wire.connections, started, self.wire.bytes


@pytest.fixture
def wire(base: Path, keys: Keys) -> Iterator[Wire]:
    sshd = Sshd(base, keys)
    made = Wire(sshd)
    yield made
    made.close()
    sshd.stop()


@pytest.fixture(params=[0, 300], ids=["not kept", "kept"])
def counted(
    request: pytest.FixtureRequest, tmp_path: Path, keys: Keys, wire: Wire
) -> Iterator[Counted]:
    known = tmp_path / "known_hosts"
    known.write_text(f"[{ADDRESS}]:{wire.port} {public(keys.host)}")
    write_ssh_config(
        tmp_path / "ssh_config", keys, known, {"far": {"HostName": ADDRESS, "Port": str(wire.port)}}
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
    yield Counted(project, wire, pythons)
    project.end()
    reaching.hang_up()


@pytest.mark.slow
def test_what_each_command_costs_a_host(counted):
    kept = counted.project.top["keep_connections_s"] > 0
    first = counted.cost("push")
    assert first.connections == 1
    assert first.bytes < FILES * 10_000 * 1.1 + MEGA
    once = Cost(0, 0, 0) if kept else Cost(1, 1, 0)
    for words in (["push"], ["start"], ["status"], ["logs"], ["stop"], ["runs"]):
        cost = counted.cost(*words)
        assert (cost.connections, cost.pythons) == (once.connections, once.pythons), words
        assert cost.bytes < 100_000, words


def test_only_what_changed_is_sent(counted):
    counted.project.ok("push")
    (counted.project.folder / "module_7.py").write_bytes(os.urandom(10_000))
    nothing_else = FILES * 150  # the names and hashes of all
    assert counted.cost("push").bytes < 10_000 + nothing_else + 20_000


def modules(project: Project, *words: str) -> set[str]:
    code = (
        "import sys; from tfdeploy.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('modules', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=project.folder, env=environment(project.folder),
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    last = done.stderr.splitlines()[-1].split()
    assert last[0] == "modules", done.stderr
    return {name.split(".")[0] for name in last}


@pytest.mark.parametrize("words", [["--help"], ["plan"]])
def test_what_needs_no_host_loads_no_ssh(counted, words):
    heavy = {"paramiko", "fabric", "invoke", "cryptography", "tensorflow", "grpc", "numpy"}
    assert not modules(counted.project, *words) & heavy


def test_a_command_whose_connections_were_kept_loads_no_ssh(counted):
    counted.project.ok("push")
    loaded = modules(counted.project, "push") & {"paramiko", "fabric", "invoke", "cryptography"}
    assert bool(loaded) == (counted.project.top["keep_connections_s"] == 0)
