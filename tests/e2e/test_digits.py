"""The main job on real hosts: 2 ps, 2 workers, separate filesystems, the real TensorFlow."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support import warm

from .conftest import HOSTS, ROOT, ssh

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow
# Its steps mostly sleep. The steps of digits/train.py would use all CPUs of the machine.
SLEEPING = ROOT / "tests" / "support" / "scripts" / "train_async.py"


def accuracy(project, collected: str) -> subprocess.CompletedProcess[str]:
    words = ["eval.py", f"{collected}/checkpoints", "--min-accuracy", "0.93"]
    return warm.run(*words, cwd=project.folder)


def test_a_run_trains_is_collected_and_the_next_one_continues_until_it_is_stopped(project):
    done = project.json("run")
    assert done["result"] == "succeeded"
    # The chief does not wait for the other worker, which is stopped if it ends much later.
    assert done["tasks"].pop("worker:1") in ("SUCCEEDED", "STOPPED")
    assert done["tasks"] == {"worker:0": "SUCCEEDED", "ps:0": "STOPPED", "ps:1": "STOPPED"}
    scored = accuracy(project, done["collected"])
    assert scored.returncode == 0, scored.stdout + scored.stderr
    _whole_on_the_chief_and_absent_on_the_ps(done)
    _the_next_run_continues_after_start_and_stop_ends_it(project, done["run"])


def _whole_on_the_chief_and_absent_on_the_ps(done):
    find = f"find ~/.tfdeploy/digits/runs/{done['run']} -name 'model.ckpt-*' | wc -l"
    counts = {host: int(ssh(host, find)) for host in HOSTS}
    assert counts["chief"] >= 3
    assert counts["ps0"] == counts["ps1"] == counts["worker1"] == 0


def _the_next_run_continues_after_start_and_stop_ends_it(project, before):
    shutil.copy(SLEEPING, project.folder)
    project.edit(("train.py", SLEEPING.name), ("--steps=400", "--steps=1000000"))
    project.ok("push")
    assert "is READY: 4 tasks on 4 hosts" in project.ok("start")
    status = project.json("status")
    assert status["run"] != before
    tasks = status["tasks"]
    assert {task["state"] for task in tasks} == {"READY"}
    assert {task["health"] for task in tasks} == {"READY"}
    logs = project.ok("logs", "ps:1", "worker-1", "-n", "5")
    assert "ps:1@ps1 | " in logs and "worker:1@worker1 | " in logs
    assert "worker:0" not in logs
    _assert_status_shows_the_others_when_a_host_is_unreachable(project)
    assert "have exited" in project.ok("stop")
    assert {task["state"] for task in project.json("status")["tasks"]} == {"STOPPED"}


def _assert_status_shows_the_others_when_a_host_is_unreachable(project):
    record = max(project.folder.glob("runs/*/hosts.toml"))
    original = record.read_text()
    record.write_text(original.replace("[hosts.ps1]", "[hosts.ps1]\nport = 22299"))
    done = project.tfdeploy("status", "--json")
    record.write_text(original)
    assert done.returncode == 1
    states = {task["task"]: task["state"] for task in json.loads(done.stdout)["tasks"]}
    assert states == {"ps:0": "READY", "ps:1": None, "worker:0": "READY", "worker:1": "READY"}
    assert "ps1: no SSH connection" in done.stderr
