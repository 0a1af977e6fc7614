"""Checkpoint, CheckpointManager and SavedModel of TF2 on machines that share no disk."""

import json
import subprocess
import sys

import pytest
from separate_machines import SCRIPTS, environment

pytestmark = pytest.mark.slow

CHIEF = "/job:chief/task:0/device:CPU:0"
TABLE = [float(i) for i in range(10)]
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def values(line):
    step, weight, momentum, table = line.split(" ", 3)
    return int(step), float(weight), float(momentum), json.loads(table)


def test_tensorflow_alone_saves_on_the_ps_and_fails(cluster):
    alone = cluster(ps=2, worker=1, chief=1)
    alone.start("train_tf2.py", device=None)
    assert alone.wait("chief-0") != [0]
    assert "NotFoundError" in alone.log("chief-0")


def test_parameter_servers_save_with_the_chief_and_restart_from_there(cluster):
    first = cluster(ps=2, worker=1, chief=1)
    first.start("train_tf2.py", device=CHIEF)
    assert first.wait("chief-0") == [0], first.log("chief-0")[-3000:]
    assert "/job:ps/replica:0/task:0" in first.said("chief-0", "variables on")
    assert "/job:ps/replica:0/task:1" in first.said("chief-0", "variables on")
    assert values(first.said("chief-0", "began at")) == (0, 5.0, 0.0, TABLE)
    assert values(first.said("chief-0", "restored")) == (10, 15.0, 2.5, TABLE)
    assert values(first.said("chief-0", "read")) == (10, 15.0, 2.5, TABLE)
    assert first.said("chief-0", "loaded") == "15.0"
    first.stop()
    for path in ("checkpoints/ckpt-1", "written/model"):
        check(first.home("chief-0") / path)
    assert "traced.index" in first.files("chief-0")
    # Options that name a device are the script's own business, and that one was on the ps.
    assert any(f.startswith("chosen.data") for f in first.files("ps-0"))
    assert first.files("ps-1") == set()
    check_elsewhere(first.home("chief-0"))

    second = cluster(ps=2, worker=1, chief=1)
    second.start("train_tf2.py", device=CHIEF)
    assert second.wait("chief-0") == [0], second.log("chief-0")[-3000:]
    assert values(second.said("chief-0", "began at")) == (10, 15.0, 2.5, TABLE)
    assert values(second.said("chief-0", "restored")) == (20, 25.0, 5.0, TABLE)


def check(path):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(path))
    assert reader.get_tensor(f"step/{VALUE}") == 10
    assert reader.get_tensor(f"weight/{VALUE}") == 15.0
    assert reader.get_tensor(f"table/{VALUE}").tolist() == TABLE
    assert reader.get_tensor(f"weight/.OPTIMIZER_SLOT/optimizer/momentum/{VALUE}") == 2.5


def check_elsewhere(home):
    command = [sys.executable, str(SCRIPTS / "load_exported.py")]
    done = subprocess.run(
        command, cwd=home, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["eager 30.0", "graph 30.0"], done.stderr[-3000:]


def test_mirrored_workers_still_save_a_copy_each(cluster):
    two = cluster(worker=2)
    two.start("train_mirrored.py", device="/job:worker/task:0/device:CPU:0")
    assert two.wait("worker-0", "worker-1") == [0, 0], two.log("worker-1")[-3000:]
    for task in ("worker-0", "worker-1"):
        assert two.said(task, "restored") == "6.0"
        assert "checkpoints/ckpt-1.index" in two.files(task)
