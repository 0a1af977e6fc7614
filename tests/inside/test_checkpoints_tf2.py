"""Checkpoint, CheckpointManager and SavedModel of TF2 on machines that share no disk."""

import json

import pytest
from separate_machines import SCRIPTS
from support import tensors, warm

pytestmark = pytest.mark.slow

CHIEF = "/job:chief/task:0/device:CPU:0"
TABLE = [float(i) for i in range(10)]
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def values(line):
    step, weight, momentum, table = line.split(" ", 3)
    return int(step), float(weight), float(momentum), json.loads(table)


def test_tensorflow_alone_saves_on_the_ps_and_fails(cluster):
    alone = cluster(ps=1, worker=1, chief=1)
    alone.start("train_tf2.py", device=None)
    assert alone.wait("chief-0") != [0]
    assert "NotFoundError" in alone.log("chief-0")


def test_the_chief_saves_all_variables_and_training_restarts_from_them(cluster):
    first = cluster(ps=2, worker=1, chief=1)
    first.start("train_tf2.py", device=CHIEF)
    assert first.wait("chief-0") == [0], first.log("chief-0")[-3000:]
    assert "/job:ps/replica:0/task:0" in first.logged("chief-0", "variables on")
    assert "/job:ps/replica:0/task:1" in first.logged("chief-0", "variables on")
    assert values(first.logged("chief-0", "started at")) == (0, 5.0, 0.0, TABLE)
    assert values(first.logged("chief-0", "restored")) == (10, 15.0, 2.5, TABLE)
    assert values(first.logged("chief-0", "read")) == (10, 15.0, 2.5, TABLE)
    assert first.logged("chief-0", "loaded") == "15.0"
    first.stop()
    for path in ("checkpoints/ckpt-1", "written/model"):
        check(first.home("chief-0") / path)
    assert "traced.index" in first.files("chief-0")
    # Options that name a device are not changed, and this device is on the ps.
    assert any(f.startswith("chosen.data") for f in first.files("ps-0"))
    assert first.files("ps-1") == set()
    check_elsewhere(first.home("chief-0"))

    second = cluster(ps=2, worker=1, chief=1)
    second.start("train_tf2.py", device=CHIEF)
    assert second.wait("chief-0") == [0], second.log("chief-0")[-3000:]
    assert values(second.logged("chief-0", "started at")) == (10, 15.0, 2.5, TABLE)
    assert values(second.logged("chief-0", "restored")) == (20, 25.0, 5.0, TABLE)


def check(path):
    saved = tensors.read(path)
    assert saved[f"step/{VALUE}"] == 10
    assert saved[f"weight/{VALUE}"] == 15.0
    assert saved[f"table/{VALUE}"] == TABLE
    assert saved[f"weight/.OPTIMIZER_SLOT/optimizer/momentum/{VALUE}"] == 2.5


def check_elsewhere(home):
    done = warm.run(SCRIPTS / "load_exported.py", cwd=home)
    assert done.stdout.splitlines() == ["eager 30.0", "graph 30.0"], done.stderr[-3000:]


def test_mirrored_workers_still_save_one_copy_each(cluster):
    two = cluster(worker=2)
    two.start("train_mirrored.py", device="/job:worker/task:0/device:CPU:0")
    assert two.wait("worker-0", "worker-1") == [0, 0], two.log("worker-1")[-3000:]
    for task in ("worker-0", "worker-1"):
        assert two.logged(task, "restored") == "6.0"
        assert "checkpoints/ckpt-1.index" in two.files(task)
