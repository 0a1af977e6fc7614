"""MonitoredTrainingSession, Saver and SavedModel of compat.v1 on machines that share no disk."""

import re

import pytest
from support import tensors

pytestmark = pytest.mark.slow

CHIEF = "/job:worker/task:0/device:CPU:0"


def test_tensorflow_alone_saves_on_the_ps_and_fails(cluster):
    alone = cluster(ps=1, worker=1)
    alone.start("train_v1.py", "--steps=10", device=None)
    assert alone.wait("worker-0") != [0]
    log = alone.log("worker-0")
    assert "NotFoundError" in log
    assert re.search(r"checkpoints/model\.ckpt-0_temp\S*; No such file or directory", log)


def test_training_continues_from_the_checkpoint_on_new_machines(cluster):
    first = cluster(ps=1, worker=1)
    first.start("train_v1.py", "--steps=10", device=CHIEF)
    assert first.wait("worker-0") == [0]
    assert first.logged("worker-0", "started at") == "0"
    first.stop()

    second = cluster(ps=1, worker=1)
    second.start("train_v1.py", "--steps=20", device=CHIEF)
    assert second.wait("worker-0") == [0]
    assert second.logged("worker-0", "started at") == "10"
    assert second.files("ps-0") == set()
    for step in (10, 20):
        saved = tensors.read(second.home("worker-0") / "checkpoints" / f"model.ckpt-{step}")
        assert saved == {
            "global_step": step,
            "weights": [float(step)] * 10,
            "table": [[float(step)] * 2] * 5,
        }


def test_a_second_worker_with_device_filters_can_build_the_save_ops(cluster):
    """Its device filters hide the chief's devices, so its save ops must not be placed on them."""
    both = cluster(ps=2, worker=2)
    both.start("train_v1.py", "--steps=40", "--device_filters", device=CHIEF)
    assert both.wait("worker-0", "worker-1") == [0, 0]
    assert "/job:ps/task:0" in both.logged("worker-0", "variables on")
    assert "/job:ps/task:1" in both.logged("worker-0", "variables on")
    assert both.files("ps-0") == both.files("ps-1") == both.files("worker-1") == set()

    directory = both.home("worker-0") / "checkpoints"
    state = (directory / "checkpoint").read_text()
    last = int(re.search(r'^model_checkpoint_path: ".*model\.ckpt-(\d+)"', state).group(1))
    assert last >= 40
    names = {f"model.ckpt-{last}.{end}" for end in ("meta", "index", "data-00000-of-00001")}
    assert names <= {f.name for f in directory.iterdir()}
    saved = tensors.read(directory / f"model.ckpt-{last}")
    # Asynchronous workers: the other one may be within a step while the chief saves.
    for values in (saved["weights"], *saved["table"]):
        assert last <= min(values) <= max(values) <= last + 2


def test_other_savers_and_exports_write_on_the_chief_and_a_local_graph_is_unchanged(cluster):
    one = cluster(ps=2, worker=1)
    one.start("export_v1.py", device=CHIEF)
    assert one.wait("worker-0") == [0], one.log("worker-0")[-3000:]
    for what in ("objects restored", "saver restored", "meta graph restored", "saved model loaded"):
        assert one.logged("worker-0", what) == "[1. 2.] 3.0"

    files = one.files("worker-0")
    assert one.files("ps-0") == one.files("ps-1") == set()
    assert {f for f in files if f.startswith("explicit/model.data")} == {
        "explicit/model.data-00000-of-00001"
    }
    assert "exported/variables/variables.data-00000-of-00001" in files
    for path in ("explicit/model", "imported/model", "exported/variables/variables"):
        saved = tensors.read(one.home("worker-0") / path)
        assert saved["first"] == [1.0, 2.0]
        assert saved["second"] == 3.0
    # Two shards, as requested: its variables are in no cluster, so its saver is not patched.
    assert "local/model.data-00001-of-00002" in files
