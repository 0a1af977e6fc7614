"""The compose hosts, the command line as a person calls it, and what is left behind: nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import leftovers
import pytest

ROOT = Path(__file__).resolve().parents[2]
SSH_CONFIG = ROOT / "tests" / "hosts" / ".keys" / "ssh_config"
HOSTS = ("ps0", "ps1", "chief", "worker1")


def ssh(host: str, command: str) -> str:
    argv = ["ssh", "-F", str(SSH_CONFIG), host, command]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def processes(host: str) -> list[str]:
    """The command lines of the user's processes on a host, less the asking itself."""
    return list(leftovers.parsed(ssh(host, leftovers.LISTING)).values())


@dataclass(frozen=True)
class Project:
    """A folder with a hosts.toml, and `tfdeploy` called in it."""

    folder: Path

    def tfdeploy(self, *words: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tfdeploy", *words]
        return subprocess.run(
            argv, cwd=self.folder, capture_output=True, text=True, timeout=timeout
        )

    def ok(self, *words: str) -> str:
        done = self.tfdeploy(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *words: str) -> dict:
        return json.loads(self.ok(*words, "--json"))

    def edit(self, *pairs: tuple[str, str]) -> None:
        """Replace text in hosts.toml; each must be there."""
        file = self.folder / "hosts.toml"
        text = file.read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text)


@pytest.fixture(scope="session", autouse=True)
def hosts_are_up():
    """Fails in CI without the hosts; elsewhere says what was skipped and how to have it."""
    try:
        for host in HOSTS:
            ssh(host, "true")
    except (subprocess.SubprocessError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the compose hosts don't answer ({error}): tests/hosts/up starts them")


@pytest.fixture
def project(tmp_path) -> Project:
    """The digits example, with the compose hosts as its hosts.toml says them."""
    for file in (ROOT / "examples" / "digits").glob("*.py"):
        shutil.copy(file, tmp_path)
    text = (Path(__file__).parent / "hosts.toml").read_text()
    text = text.replace("../hosts/.keys/ssh_config", str(SSH_CONFIG))
    (tmp_path / "hosts.toml").write_text(text.replace("../../examples/digits", "."))
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left(hosts_are_up):
    """After every test here, whatever it did: no process of ours on any host."""
    yield
    left = {host: processes(host) for host in HOSTS}
    assert not any(left.values()), left
