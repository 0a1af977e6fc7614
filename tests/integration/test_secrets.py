"""training.secrets: their values reach the tasks, and are found nowhere else."""

from __future__ import annotations

import json
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.projects import Project, toml

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "WANDB_API_KEY"
TRAINING = {"secrets": [NAME]}


def files_with(value: str, folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and value.encode() in path.read_bytes():
            yield path


def command_lines() -> str:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().decode(errors="replace"))
        except OSError:  # the process has ended
            continue
    return "\n".join(found)


def environment_of(project: Project, task: str) -> list[bytes]:
    pid = project.status()[task]["pid"]
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.slow
def test_a_secret_reaches_every_task_and_is_found_nowhere_else(by_ssh, monkeypatch):
    value = f"planted-{secrets.token_hex(16)}"
    monkeypatch.setenv(NAME, value)
    project = by_ssh.project("--hold", training=TRAINING)
    shown = project.ok("plan") + project.ok("plan", "--json") + project.ok("push")
    shown += project.ok("start")
    for task in ("ps:0", "worker:0", "worker:1"):
        assert f"{NAME}={value}".encode() in environment_of(project, task)
    shown += project.ok("status", "--json") + project.ok("logs", "-n", "99")
    assert value not in command_lines()
    shown += project.ok("stop") + project.ok("collect")
    assert value not in shown
    assert f"{NAME}=***" in shown
    assert json.loads(project.ok("plan", "--json"))["secrets"] == [NAME]
    assert list(files_with(value, project.folder)) == []
    assert list(files_with(value, project.folder.parent)) == []
    stored = [file for host in project.hosts for file in files_with(value, project.on(host))]
    assert {file.name for file in stored} == {"launch.json"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in stored} == {0o600}


def test_a_secret_that_is_not_set_stops_a_run_before_the_push(by_ssh, monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    project = by_ssh.project(training={"secrets": [NAME, "HF_TOKEN"]})
    for words in (("run",), ("start",), ("start", "--push")):
        refused = project.tf(*words)
        assert refused.returncode == 2
        assert refused.stderr.splitlines() == [
            f"error: training.secrets: {NAME}, HF_TOKEN not set in this command's environment",
            f"  read -rs {NAME} && export {NAME} sets it, and leaves no trace in the shell's "
            "history",
        ]
    assert not any(project.on(host).exists() for host in project.hosts)


def test_a_value_in_place_of_a_name_is_refused(by_ssh):
    project = by_ssh.project()
    file = project.folder / "hosts.toml"
    table = toml({"training": {"secrets": {NAME: "k"}, "command": "x"}, "hosts": {"a": {}}})
    file.write_text(f'project = "p"\n{table}')
    assert "training.secrets: found" in project.tf("plan").stderr
