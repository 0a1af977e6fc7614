"""Fixtures: the compose hosts, projects on them, and a check that no process is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import command_line, evidence
from support.machines import (
    HOSTS,
    ROOT,
    SET,
    SSH_CONFIG,
    assert_nothing_runs_but,
    running_commands,
    ssh,
)


@dataclass(frozen=True)
class Project:
    """A folder with a hosts.toml, in which `tfdeploy` runs."""

    folder: Path

    def tfdeploy(self, *words: str) -> subprocess.CompletedProcess[str]:
        evidence.used(self)
        return command_line.run(*words, cwd=self.folder, env=os.environ)

    def ok(self, *words: str) -> str:
        done = self.tfdeploy(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def evidence(self) -> dict[str, str]:
        """Return `status`, the ends of the logs, and the processes on the hosts."""
        status, logs = self.tfdeploy("status"), self.tfdeploy("logs", "-n", "40")
        return {
            "status.txt": status.stdout + status.stderr,
            "logs.txt": logs.stdout + logs.stderr,
            "processes.txt": str(running_commands()),
        }

    def json(self, *words: str) -> dict:
        return json.loads(self.ok(*words, "--json"))

    def edit(self, *pairs: tuple[str, str]) -> None:
        """Replace texts in hosts.toml; each old text must exist."""
        file = self.folder / "hosts.toml"
        text = file.read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)


@pytest.fixture(scope="session", autouse=True)
def hosts_are_up():
    """Skip the tests if a host does not answer, and say how to start them."""
    try:
        for host in HOSTS:
            ssh(host, "true")
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(
            f"the compose hosts don't answer ({error}): tests/hosts/up {SET + 1} starts them"
        )


@pytest.fixture
def project(tmp_path) -> Project:
    """Copy the digits example, with a hosts.toml for the compose hosts."""
    digits = ROOT / "examples" / "digits"
    for file in (*digits.glob("*.py"), *digits.glob("*.gz")):
        shutil.copy(file, tmp_path)
    text = (Path(__file__).parent / "hosts.toml").read_text()
    text = text.replace("../hosts/.keys/ssh_config.0", str(SSH_CONFIG))
    (tmp_path / "hosts.toml").write_text(text.replace("../../examples/digits", "."))
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def no_process_is_left(hosts_are_up):
    """Check after each test that no process of the user is left on any host."""
    yield
    assert_nothing_runs_but({host: [] for host in HOSTS})
