"""The main job on real hosts with separate filesystems and the real TensorFlow: from hosts and a
script to a trained model, without a hosts.toml written by hand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support import warm

from tfdeploy.config import inventory

from .conftest import SSH_CONFIG, ssh

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.slow


def accuracy(project, collected: str) -> subprocess.CompletedProcess[str]:
    words = ["eval.py", f"{collected}/checkpoints", "--min-accuracy", "0.93"]
    return warm.run(*words, cwd=project.folder)


def test_init_and_run_are_enough_to_train(project):
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
