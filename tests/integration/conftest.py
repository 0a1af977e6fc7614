"""The session's keys and sshd processes, and projects that use them over both transports."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from support.projects import Project, local_hosts, ssh_hosts
from support.sshd import Keys, Sshd, program, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="session")
def keys(base: Path) -> Keys:
    missing = [name for name in ("sshd", "ssh", "ssh-keygen", "rsync") if not program(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: apt-get install openssh-server rsync")
    return Keys(base / "keys")


@pytest.fixture(scope="session")
def sshds(base: Path, keys: Keys) -> Iterator[dict[str, Sshd]]:
    """Start three sshd, which stand in for three hosts."""
    running = {name: Sshd(base, keys) for name in ("one", "two", "three")}
    yield running
    for sshd in running.values():
        sshd.stop()


@pytest.fixture(scope="session")
def ssh_config(base: Path, keys: Keys, sshds: dict[str, Sshd]) -> Path:
    """Write an ssh_config with the three hosts and their host keys."""
    known_hosts = base / "known_hosts"
    known_hosts.write_text("".join(sshd.known_hosts_line for sshd in sshds.values()))
    file = base / "ssh_config"
    entries = {name: sshd.entry() for name, sshd in sshds.items()}
    write_ssh_config(file, keys, known_hosts, entries)
    return file


@dataclass
class World:
    """Hosts with one transport. It creates projects on them, and ends the projects' processes."""

    transport: str
    base: Path
    ssh_config: Path | None
    projects: list[Project] = field(default_factory=list)

    def project(self, *flags: str, **more: Any) -> Project:
        """Create a project whose hosts run ps:0, worker:0 (the chief) and worker:1."""
        folder = self.base / f"{self.transport}-{next(NUMBERS)}" / more.pop("folder", "project")
        top: dict[str, Any] = {"ssh_config": str(self.ssh_config)} if self.ssh_config else {}
        top |= {"source": {"exclude": ["/*.toml"]}, **more.pop("top", {})}
        hosts = more.pop("hosts", None) or self.hosts()
        self.projects.append(Project(folder, hosts, top, flags=list(flags), **more))
        return self.projects[-1]

    def pushed(self, *flags: str, **more: Any) -> Project:
        """Create a project whose release is on its hosts. Flags do not change the release, so it is
        pushed only once."""
        project = self.project(*flags, name=f"p{os.getpid()}-{self.transport}", **more)
        if not all(project.on(host).is_dir() for host in project.hosts):
            project.ok("push")
        return project

    def started(self, *flags: str, **more: Any) -> Project:
        project = self.pushed(*flags, **more)
        project.ok("start")
        return project

    def hosts(self) -> dict[str, dict[str, Any]]:
        make = ssh_hosts if self.ssh_config else local_hosts
        return make(self.base / "hosts")

    def end(self) -> None:
        for project in self.projects:
            project.end()


@pytest.fixture(scope="module", params=["ssh"])
def lasting(request: pytest.FixtureRequest, base: Path) -> Iterator[World]:
    """Return a world whose projects end after the module's tests with this transport.

    test_transport_contract.py shows that the transports do the same, so a test has one of
    them. Both have a smoke test: test_every_command_of_a_run_prints_its_document.
    """
    ssh_config = request.getfixturevalue("ssh_config") if request.param == "ssh" else None
    shared = World(request.param, base, ssh_config)
    yield shared
    shared.end()


@pytest.fixture
def world(lasting: World) -> Iterator[World]:
    """Return a world whose projects end with the test."""
    own = World(lasting.transport, lasting.base, lasting.ssh_config)
    yield own
    own.end()


@pytest.fixture
def by_ssh(base: Path, ssh_config: Path) -> Iterator[World]:
    """Return a world for tests that only make sense with SSH."""
    own = World("ssh", base, ssh_config)
    yield own
    own.end()


@pytest.fixture
def local(base: Path) -> Iterator[World]:
    """Return a world for tests that pass environment variables of the command to its host."""
    own = World("local", base, None)
    yield own
    own.end()
