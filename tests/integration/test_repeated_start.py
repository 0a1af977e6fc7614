"""A start whose connection turns out to be silent is sent once more; both may arrive."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ports import ADDRESS
from support.projects import Project, ssh_hosts
from support.sshd import Keys, Sshd, alive, public, write_ssh_config
from support.waiting import until

from tfdeploy.transport.daemon import locate
from tfdeploy.transport.ssh import connection

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


class SilentConnections:
    """A project with a release on two hosts, to which all open connections have become silent."""

    def __init__(self, project: Project, sshd: Sshd) -> None:
        self.project = project
        project.ok("push")
        self._stopped = sshd.connections
        self._agents = [pid for pid in self._stopped if is_agent(pid)]
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(connection.ALIVE_CACHE_S)  # then the daemon asks whether they answer

    def deliver(self) -> None:
        """Deliver all that was sent over the silent connections, and wait until their agents have
        read it and exited."""
        for pid in self._stopped:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
        assert self._agents
        until(lambda: not any(map(alive, self._agents)), "the end of the first agents")


def is_agent(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0serve\0")


@pytest.fixture
def silent(tmp_path: Path, keys: Keys, base: Path) -> Iterator[SilentConnections]:
    sshd = Sshd(base, keys)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{ADDRESS}]:{sshd.port} {public(keys.host)}")
    entries = {name: {"HostName": ADDRESS, "Port": str(sshd.port)} for name in ("one", "two")}
    write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, entries)
    top = {"ssh_config": str(tmp_path / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
    hosts, flags = ssh_hosts(tmp_path / "hosts"), ["--hold", "--steps=2"]
    project = Project(tmp_path / "project", hosts, top, flags=flags)
    connections = SilentConnections(project, sshd)
    yield connections
    connections.deliver()
    project.end()
    locate.stop_daemons()
    sshd.stop()


def test_a_start_that_arrives_twice_starts_each_task_once(silent):
    silent.project.ok("start")
    before = silent.project.processes()
    silent.deliver()
    tasks = silent.project.status().values()
    assert [(task["state"], task["restarts"]) for task in tasks] == [("READY", 0)] * 3
    assert silent.project.processes() == before
    assert len(silent.project.runs) == 1


def test_a_start_that_arrives_again_after_the_stop_starts_nothing(silent):
    silent.project.ok("start")
    silent.project.ok("stop")
    silent.deliver()
    assert silent.project.processes() == {}
    assert {task["state"] for task in silent.project.status().values()} == {"STOPPED"}
