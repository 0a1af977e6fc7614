"""The main job on real hosts with separate filesystems and the real TensorFlow: from hosts and a
script to a trained model, without a hosts.toml written by hand; then 2 ps and 2 workers of a stub.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support import warm
from support.projects import STUB
from support.waiting import until

from tfdeploy.config import inventory

from .conftest import SSH_CONFIG, ssh

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow


def accuracy(project, collected: str) -> subprocess.CompletedProcess[str]:
    words = ["eval.py", f"{collected}/checkpoints", "--min-accuracy", "0.93"]
    return warm.run(*words, cwd=project.folder)


def test_init_and_run_are_enough_to_train_and_the_next_run_continues_until_it_is_stopped(project):
    four_hosts = (project.folder / "hosts.toml").read_text()
    _init_finds_out_what_three_hosts_can_do(project)
    done = json.loads(project.ok("run", "--json", "--", "--steps=600"))
    assert done["result"] == "succeeded"
    # The chief does not wait for the other workers, which are stopped if they end much later.
    assert {done["tasks"].pop(f"worker:{index}") for index in (1, 2)} <= {"SUCCEEDED", "STOPPED"}
    assert done["tasks"] == {"worker:0": "SUCCEEDED", "ps:0": "STOPPED"}
    scored = accuracy(project, done["collected"])
    assert scored.returncode == 0, scored.stdout + scored.stderr
    assert list(project.folder.glob("runs/*/checkpoints/model.ckpt-*"))
    _assert_checkpoints_are_on_the_chief_alone(project, ("ps0", "worker1"))
    (project.folder / "hosts.toml").write_text(four_hosts)
    _the_next_run_continues_after_start_and_stop_ends_it(project, done["run"])


def _init_finds_out_what_three_hosts_can_do(project):
    (project.folder / "hosts.toml").unlink()
    out = project.ok("init", "ps0", "chief", "worker1", "--ssh-config", str(SSH_CONFIG))
    assert "ps0: no GPU, so a ps, which needs none" in out
    loaded = inventory.load(project.folder / "hosts.toml")
    # tests/hosts/nvidia-smi pretends these GPUs; ssh reaches all hosts at 127.0.0.1.
    tasks = {h.name: (h.ps, len(h.gpus), h.workers) for h in loaded.hosts}
    assert tasks == {"ps0": (1, 0, 0), "chief": (0, 2, -1), "worker1": (0, 1, 1)}
    assert {host.python for host in loaded.hosts} == {"/opt/python/bin/python"}
    assert {host.directory for host in loaded.hosts} == {"~/.tfdeploy"}
    assert len({host.address for host in loaded.hosts}) == 3


def _assert_checkpoints_are_on_the_chief_alone(project, others):
    name = inventory.load(project.folder / "hosts.toml").project
    run = max(path.name for path in (project.folder / "runs").iterdir())
    find = f"find ~/.tfdeploy/{name}/runs/{run} -name 'model.ckpt-*' | wc -l"
    assert int(ssh("chief", find)) >= 3
    assert {int(ssh(host, find)) for host in others} == {0}


def _the_next_run_continues_after_start_and_stop_ends_it(project, before):
    shutil.copy(STUB, project.folder / "stub.py")
    project.edit(("train.py", "stub.py"), ("--steps=400", "--hold"))
    project.ok("push")
    assert "is READY: 4 tasks on 4 hosts" in project.ok("start")
    status = project.json("status")
    assert status["run"] != before
    assert {task["state"] for task in status["tasks"]} == {"READY"}
    until(lambda: {t["health"] for t in project.json("status")["tasks"]} == {"READY"}, "health")
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
