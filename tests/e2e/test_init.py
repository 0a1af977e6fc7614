"""From hosts and a script to a trained model, without a hosts.toml written by hand."""

from __future__ import annotations

import json

import pytest

from tfdeploy.config import inventory

from .conftest import SSH_CONFIG

pytestmark = pytest.mark.slow


def test_init_and_run_are_enough_to_train_on_three_hosts(project):
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
    done = json.loads(project.ok("run", "--json", "--", "--steps=200"))
    assert done["result"] == "succeeded"
    assert list(project.folder.glob("runs/*/checkpoints/model.ckpt-*"))
