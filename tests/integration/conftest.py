"""The session's keys and sshd processes, and projects that use them over both transports."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from .projects import Project, local_hosts, ssh_hosts
from .sshd import Keys, Sshd, program, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="session", autouse=True)
def no_agent() -> Iterator[None]:
    """A developer's own ssh-agent offers no keys here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield


@pytest.fixture(scope="session")
def keys(base: Path) -> Keys:
    missing = [name for name in ("sshd", "ssh", "ssh-keygen", "rsync") if not program(name)]
    if missing:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up(f"{', '.join(missing)} missing: apt-get install openssh-server rsync")
    return Keys(base / "keys")


@pytest.fixture(scope="session")
def sshds(base: Path, keys: Keys) -> Iterator[dict[str, Sshd]]:
    """Three hosts, as far as SSH can tell."""
    running = {name: Sshd(base, keys) for name in ("one", "two", "three")}
    yield running
    for sshd in running.values():
        sshd.stop()


@pytest.fixture(scope="session")
def ssh_config(base: Path, keys: Keys, sshds: dict[str, Sshd]) -> Path:
    """An ssh_config that knows the three, and their host keys."""
    known = base / "known_hosts"
    known.write_text("".join(sshd.known for sshd in sshds.values()))
    file = base / "ssh_config"
    write_ssh_config(file, keys, known, {name: sshd.entry() for name, sshd in sshds.items()})
    return file


@dataclass
class World:
    """A way to reach hosts: makes projects on them, and ends what those left."""

    transport: str
    base: Path
    ssh_config: Path | None
    made: list[Project] = field(default_factory=list)

    def project(self, *flags: str, **more: Any) -> Project:
        """A project whose hosts carry ps:0, worker:0 (the chief) and worker:1."""
        folder = self.base / f"{self.transport}-{next(NUMBERS)}" / more.pop("folder", "project")
        top: dict[str, Any] = {"ssh_config": str(self.ssh_config)} if self.ssh_config else {}
        top |= {"source": {"exclude": ["/*.toml"]}, **more.pop("top", {})}
        hosts = more.pop("hosts", None) or self.hosts()
        self.made.append(Project(folder, hosts, top, flags=list(flags), **more))
        return self.made[-1]

    def pushed(self, *flags: str, **more: Any) -> Project:
        """One whose release is on its hosts: flags are no part of that, so it is sent only once."""
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
        for project in self.made:
            project.end()


# The same again without SSH has less to go wrong: that comes with all tests.
@pytest.fixture(scope="module", params=["ssh", pytest.param("local", marks=pytest.mark.slow)])
def lasting(request: pytest.FixtureRequest, base: Path) -> Iterator[World]:
    """A world whose projects live as long as the module's tests with this transport."""
    ssh_config = request.getfixturevalue("ssh_config") if request.param == "ssh" else None
    made = World(request.param, base, ssh_config)
    yield made
    made.end()


@pytest.fixture
def world(lasting: World) -> Iterator[World]:
    """A world whose projects end with the test."""
    own = World(lasting.transport, lasting.base, lasting.ssh_config)
    yield own
    own.end()


@pytest.fixture
def by_ssh(base: Path, ssh_config: Path) -> Iterator[World]:
    """For what has no meaning without SSH."""
    own = World("ssh", base, ssh_config)
    yield own
    own.end()


@pytest.fixture
def local(base: Path) -> Iterator[World]:
    """For what has to find the environment of the command on its host."""
    own = World("local", base, None)
    yield own
    own.end()
