"""The main job on real hosts: 2 ps, 2 workers, separate filesystems, the real TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import HOSTS, ssh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def accuracy(project, collected: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "eval.py", f"{collected}/checkpoints", "--min-accuracy", "0.93"]
    return subprocess.run(argv, cwd=project.folder, capture_output=True, text=True)


def test_two_runs_one_after_the_other_train_and_bring_their_checkpoints_home(project):
    first = project.json("run")
    second = project.json("run")
    assert first["run"] != second["run"]
    for done in (first, second):
        assert done["result"] == "succeeded"
        assert done["tasks"] == {
            "worker:0": "SUCCEEDED", "worker:1": "SUCCEEDED", "ps:0": "STOPPED", "ps:1": "STOPPED",
        }  # fmt: skip
        scored = accuracy(project, done["collected"])
        assert scored.returncode == 0, scored.stdout + scored.stderr


def test_checkpoints_are_whole_on_the_chief_and_absent_on_the_ps(project):
    done = project.json("run")
    find = f"find ~/.tfdeploy/digits/runs/{done['run']} -name 'model.ckpt-*' | wc -l"
    counts = {host: int(ssh(host, find)) for host in HOSTS}
    assert counts["chief"] >= 3
    assert counts["ps0"] == counts["ps1"] == counts["worker1"] == 0


def test_start_leaves_a_run_that_lives_without_us_and_stop_ends_it(project):
    project.edit(("--steps=400", "--steps=1000000"))
    project.ok("push")
    assert "is READY: 4 tasks on 4 hosts" in project.ok("start")
    tasks = project.json("status")["tasks"]
    assert {task["state"] for task in tasks} == {"READY"}
    assert {task["health"] for task in tasks} == {"READY"}
    logs = project.ok("logs", "ps:1", "worker-1", "-n", "5")
    assert "ps:1@ps1 | " in logs and "worker:1@worker1 | " in logs
    assert "worker:0" not in logs
    assert "is left running" in project.ok("stop")
    assert {task["state"] for task in project.json("status")["tasks"]} == {"STOPPED"}
