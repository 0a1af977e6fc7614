"""A run that an older version of tfdeploy started is shown, collected and stopped by this one."""

from __future__ import annotations

import json
import os

import pytest
from support import older_version
from support.chief import save
from support.ports import free_ports
from support.waiting import until

from tfdeploy.hosts.agent_bundle import current_version
from tfdeploy.hosts.agent_session import BULK

LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)


@pytest.fixture
def project(world, tmp_path):
    """A run of the older version whose chief has saved a checkpoint and written outputs."""
    project = world.project("--hold", "--steps=1")
    version = older_version.unpack(tmp_path / "older")
    older_version.run(version, project, "push")
    older_version.run(version, project, "start")
    agent = json.loads((project.run_folder / "run.json").read_text())["agent"]
    assert agent != current_version()
    work = project.work("worker:0")
    until((work / "checkpoints/checkpoint").is_file, "the chief's checkpoint")
    save(work / "checkpoints", 7)
    (work / "model.txt").write_text("weights")
    return project


def collected(project):
    return {
        path.relative_to(project.run_folder).as_posix(): path.read_bytes()
        for folder in ("checkpoints", "outputs", "events", "logs")
        for path in (project.run_folder / folder).rglob("*")
        if path.is_file()
    }


def nothing_is_held(project):
    return not any((project.on("here") / "runs" / project.runs[-1]).glob("*/held"))


@LOCAL_ONLY
def test_a_run_of_an_older_version_is_collected_and_stopped(project):
    assert {task["state"] for task in project.status().values()} == {"READY"}
    result = json.loads(project.ok("collect", "--json"))
    assert result["checkpoints"][0]["step"] == 7
    found = collected(project)
    assert found["checkpoints/model.ckpt-7.index"] == b"index 7"
    assert found["outputs/model.txt"] == b"weights"
    assert b"worker:1" in found["logs/worker-1.log"]
    assert nothing_is_held(project)
    project.ok("fetch", "worker:0", "model.txt")
    assert (project.run_folder / "fetched/worker-0/model.txt").read_bytes() == b"weights"
    assert "worker:0" in project.ok("logs", "worker:0")
    project.ok("stop")
    assert {task["state"] for task in project.status().values()} == {"STOPPED"}
    assert project.processes() == {}


@LOCAL_ONLY
def test_a_run_of_an_older_version_says_what_its_agent_cannot_do(project):
    with project.start_command("logs", "-f", "worker:0") as following:
        following.wait_for_output("worker:0")
        following.interrupt()
    for command in (("watch", "--json"), ("logs", "--grep", "x")):
        refused = project.tf(*command)
        assert refused.returncode == 1
        assert "another version of tfdeploy started this run" in refused.stdout + refused.stderr
    project.ok("stop")


@LOCAL_ONLY
def test_large_files_of_a_run_of_an_older_version_are_collected(project):
    work = project.work("worker:0")
    data, output = os.urandom(BULK + 1), os.urandom(BULK + 2)
    (work / "checkpoints/model.ckpt-7.data-00000-of-00001").write_bytes(data)
    (work / "large.bin").write_bytes(output)
    project.ok("collect")
    found = collected(project)
    assert found["checkpoints/model.ckpt-7.data-00000-of-00001"] == data
    assert found["outputs/large.bin"] == output
    assert nothing_is_held(project)
    project.ok("stop")


@LOCAL_ONLY
def test_a_run_of_an_older_version_is_resumed(project):
    project.ok("stop")
    project.ok("resume")
    restored = project.work("worker:0") / "checkpoints/model.ckpt-7.index"
    assert restored.read_text() == "index 7"
    assert {task["state"] for task in project.status().values()} == {"READY"}
    project.ok("stop")


@LOCAL_ONLY
def test_a_queued_run_waits_for_a_run_of_an_older_version(project, world):
    queued = world.project()
    held = project.hosts["here"]["ports"]
    queued.hosts["here"]["ports"] = [*held, *free_ports(2)]
    queued.write()
    queued.ok("start", "--push", "--queue")
    [waiting] = [
        run for run in json.loads(queued.ok("queue", "--json"))["waiting"]
        if run["run"] == queued.runs[-1]
    ]  # fmt: skip
    assert f" is taken by {waiting['user']}'s run {project.runs[-1]}" in waiting["hosts"]["here"]
    project.ok("stop")
    queued.ok("attach")
    assert {task["state"] for task in queued.status().values()} <= {"SUCCEEDED", "STOPPED"}
