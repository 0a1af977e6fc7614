"""TF2's ParameterServerStrategy on real hosts: tf.train.Checkpoint comes home whole, unmodified."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT, SSH_CONFIG, Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS_TOML = f"""
project = "coordinator"
ssh_config = "{SSH_CONFIG}"

[training]
command = "python train_tf2.py"

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
READ = """
import json, sys, tensorflow as tf
newest = tf.train.latest_checkpoint(sys.argv[1])
reader = tf.train.load_checkpoint(newest)
names = reader.get_variable_to_shape_map()
values = {name: reader.get_tensor(name) for name in names if "OBJECT" not in name}
print(json.dumps({name: value.tolist() for name, value in values.items()}, default=str))
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
    argv = [sys.executable, "-c", READ, f"{done['collected']}/checkpoints"]
    values = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert values["weight/.ATTRIBUTES/VARIABLE_VALUE"] == 15.0
    assert values["step/.ATTRIBUTES/VARIABLE_VALUE"] == 10
