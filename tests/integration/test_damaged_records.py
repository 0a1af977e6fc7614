"""A record on a host that is empty, cut or overwritten is named, and nothing else suffers."""

from __future__ import annotations

import shutil

import pytest
from support.waiting import until


def empty(file):
    file.write_bytes(b"")


def cut(file):
    data = file.read_bytes().rstrip()  # records are padded
    file.write_bytes(data[: len(data) // 2])


def overwrite(file):
    file.write_bytes(b"\xff[")


def write_another(file):
    file.write_bytes(b"[]")


DAMAGES = [empty, cut, overwrite, write_another]


@pytest.fixture
def project(local):
    return local.started("--hold")


def saved(project):
    folder = project.work("worker:0") / "checkpoints"
    until(lambda: "ckpt-3" in (folder / "checkpoint").read_text(), "the last checkpoint")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_launch_that_cannot_be_read_is_named_and_everything_else_goes_on(project, damage):
    saved(project)
    file = project.work("worker:1").parent / "launch.json"
    (project.work("worker:1") / "result.txt").write_text("result")
    damage(file)
    states = project.status()
    assert {task["state"] for task in states.values()} == {"READY"}
    assert f"{file} can't be read: it" in states["worker:1"]["reason"]
    assert "tfdeploy stop" in states["worker:1"]["reason"]
    done = project.tf("collect")
    assert done.returncode == 0, done.stderr
    assert f"{file} can't be read" in done.stdout
    assert (project.run_folder / "outputs/worker-1/result.txt").is_file()
    assert f"\n{project.runs[-1]}  running" in project.ok("runs")
    assert f"{file} can't be read" in project.tf("exec", "worker:1", "--", "true").stderr
    assert "have exited" in project.ok("stop")
    assert project.processes() == {}
    project.ok("resume")
    assert project.status()["worker:1"]["reason"] == ""


def test_only_the_checkpoint_is_missing_if_the_launch_of_the_chief_cannot_be_read(project):
    saved(project)
    file = project.work("worker:0").parent / "launch.json"
    empty(file)
    done = project.tf("collect")
    assert done.returncode == 1
    assert f"error: here: {file} can't be read: it is empty\n  tfdeploy stop" in done.stderr
    assert "3 logs in" in done.stdout
    outputs = project.run_folder / "outputs/checkpoints"
    assert (outputs / "model.ckpt-3.index").is_file()
    project.ok("stop")
    assert "resumes from model.ckpt-3 on here" in project.ok("resume")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_cannot_be_read_is_what_the_history_says(project, damage):
    file = project.work("worker:1").parent / "state.json"
    damage(file)
    task = project.status()["worker:1"]
    assert (task["state"], task["restarts"]) == ("READY", 0)
    assert f"{file} can't be read: it" in task["reason"]
    project.ok("stop")
    assert project.status()["worker:1"]["state"] == "STOPPED"
    assert "can't be read" not in project.ok("status")
    damage(file)
    task = project.status()["worker:1"]
    assert (task["state"], task["exit"]) == ("STOPPED", -15)
    assert f"{file} can't be read: it" in task["reason"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_record_of_a_run_that_a_host_cannot_read_is_named(by_ssh, damage):
    project = by_ssh.started("--hold")
    record = project.on("two") / "runs" / project.runs[-1] / "record.json"
    damage(record)
    assert project.tf("status").returncode == 0
    shutil.rmtree(project.run_folder)
    for words in (["stop"], ["stop", record.parent.name]):
        done = project.tf(*words)
        assert done.returncode != 0
        assert f"two can't read its record of run {record.parent.name}: {record}" in done.stderr
        assert "copy that file from one, where it is whole" in done.stderr
    other = project.on("one") / "runs" / record.parent.name / "record.json"
    damage(other)
    assert "can't read its record: " in project.tf("stop").stderr
    assert len(project.processes()) == 6


def test_a_task_of_which_neither_state_nor_history_can_be_read_is_lost(project):
    project.ok("stop")
    folder = project.work("worker:1").parent
    history = project.on("here") / "runs" / project.runs[-1] / "logs/worker-1.history.jsonl"
    for file in (folder / "state.json", history):
        empty(file)
    task = project.status()["worker:1"]
    assert task["state"] == "LOST"
    assert "how it ended is not known" in task["reason"]
    assert "STOPPED   worker:0" in project.ok("stop")
