"""TF2's ParameterServerStrategy on real hosts: collect gets the complete tf.train.Checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import tensors

from .conftest import ROOT, SSH_CONFIG, Project

pytestmark = pytest.mark.slow

HOSTS_TOML = f"""
project = "coordinator"
ssh_config = "{SSH_CONFIG}"

[training]
command = "python train_tf2.py"
ready_timeout_s = 900

[defaults]
python = "/opt/python/bin/python"

[hosts.ps0]
address = "ps0"
ps = 1

[hosts.ps1]
address = "ps1"
ps = 1

[hosts.chief]
address = "chief"
chief = true

[hosts.worker1]
address = "worker1"
workers = 1
"""


@pytest.fixture
def coordinator(tmp_path) -> Project:
    shutil.copy(ROOT / "tests" / "inside" / "scripts" / "train_tf2.py", tmp_path)
    (tmp_path / "hosts.toml").write_text(HOSTS_TOML)
    return Project(tmp_path)


def test_the_chief_saves_on_its_own_disk_and_the_servers_are_stopped_after_it(coordinator):
    done = coordinator.json("run")
    assert done["tasks"] == {
        "chief:0": "SUCCEEDED", "worker:0": "STOPPED", "ps:0": "STOPPED", "ps:1": "STOPPED",
    }  # fmt: skip
    values = tensors.read(Path(done["collected"]) / "checkpoints")
    assert values["weight/.ATTRIBUTES/VARIABLE_VALUE"] == 15.0
    assert values["step/.ATTRIBUTES/VARIABLE_VALUE"] == 10
