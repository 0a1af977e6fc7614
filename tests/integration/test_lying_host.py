"""A host that another user has taken over, whose agent and rsync answer what they want."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command_line import REAL
from support.ports import free_ports
from support.projects import environment
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.commands.logs import logs
from tfdeploy.errors import CommandTimedOut
from tfdeploy.hosts import following
from tfdeploy.hosts.fleet import Fleet

LYING_AGENT = Path(__file__).parents[1] / "support/scripts/lying_agent.py"
MOST_BYTES = 200 << 20  # of memory: a command that does little takes 60 MB


@pytest.fixture
def project(by_ssh, tmp_path):
    """Return a project with a run on a host of its own, without a connection daemon, which would
    keep the host's honest agent."""
    name, host = list(by_ssh.hosts().items())[-1]
    host |= {"workers": 1, "ports": free_ports(2), "directory": str(tmp_path / "host")}
    top = {"keep_connections_s": 0}
    project = by_ssh.project("--steps=0", "--hold", hosts={name: host}, top=top)
    project.ok("push")
    project.ok("start")
    return project


def lie(project, kind):
    """Replace the host's agent by one that lies. Return its folder."""
    (host,) = project.hosts.values()
    (agent,) = Path(host["directory"]).glob("agent/*/__main__.py")
    shutil.copy(LYING_AGENT, agent)
    (agent.parent / "kind").write_text(kind)
    return agent.parent


def start(project, *words):
    """Start a command whose output nobody reads."""
    return subprocess.Popen(
        [*REAL, *words], cwd=project.folder, env=environment(project.folder),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def peak_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.parametrize("words", [["logs", "-f"], ["logs"]])
def test_a_reader_that_blocks_stops_the_host_too(project, words):
    agent = lie(project, "flood")
    process = start(project, *words)
    until(lambda: (agent / "blocked").exists() and (agent / "sent").exists(), "the host")
    assert int((agent / "sent").read_text()) < 12
    assert peak_bytes(process) < MOST_BYTES
    process.kill()
    process.communicate()


def test_logs_end_if_a_host_is_silent(project, monkeypatch):
    lie(project, "silence")
    monkeypatch.setattr(following, "READ_SILENCE_S", 0.5)
    run = runs.load(project.folder / "hosts.toml")
    silent = pytest.raises(CommandTimedOut, match=r"gave no answer within 0.5 s")
    with Fleet(run.inventory, version=run.agent) as fleet, silent:
        list(logs(fleet, run))


@pytest.mark.parametrize("kind", ["words", "failure"])
def test_what_a_host_says_instead_of_an_answer_is_a_short_line(project, kind):
    lie(project, kind)
    done = project.tf("collect")
    printed = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"error: {next(iter(project.hosts))}: " in printed
    assert len(printed) < 25_000
    assert not re.search(r"^ *error: other|\x1b|\u202e", printed, re.MULTILINE)


def test_a_host_reports_no_tasks_but_its_own(project):
    lie(project, "others")
    done = project.tf("status", "--json")
    assert [task["task"] for task in json.loads(done.stdout)["tasks"]] == ["worker:0"]
    assert "evil" not in done.stdout
    lie(project, "long")
    assert len(project.tf("status").stdout) < 10_000
