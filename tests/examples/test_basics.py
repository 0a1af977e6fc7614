"""The basics, run with tfdeploy on this machine: each shows what its page says."""

from __future__ import annotations

import re

import pytest
from support import tensors
from support.recipes import run

pytestmark = pytest.mark.slow
# The accuracy that fewer steps or other first weights may cost: 14 images of 359.
MARGIN = 0.04


def losses(log):
    """Return the losses in a log, in their order."""
    return [float(loss) for loss in re.findall(r"^step \d+ loss ([\d.]+)$", log, re.MULTILINE)]


def places(log):
    """Return the task of each variable that a log names."""
    return dict(re.findall(r"^(\S+) .*is on (\S+)$", log, re.MULTILINE))


def test_serial_learns(serial):
    log = serial.log("worker:0")
    assert serial.tasks == {"worker:0": "SUCCEEDED"}
    assert log.endswith("ended after 600 steps\n")
    assert losses(log)[0] > 1 > 0.2 > losses(log)[-1]
    assert serial.accuracy() >= 0.96


def test_matmul_times_the_cpu(tmp_path):
    done = run("matmul", tmp_path)
    log = done.log("worker:0")
    assert done.tasks == {"worker:0": "SUCCEEDED"}
    size, speed, middle, fastest, slowest = (
        float(value)
        for value in re.search(
            r"/device:CPU:0 (\d+) x \d+: ([\d.]+) GFLOP/s\n"
            r".* median of \d+ ([\d.]+) ms\n"
            r"  fastest ([\d.]+) ms, slowest ([\d.]+) ms",
            log,
        ).groups()
    )
    assert fastest <= middle <= slowest
    assert speed == pytest.approx(2 * size**3 / (middle / 1e3) / 1e9, rel=0.1)
    assert log.endswith("by default TensorFlow uses /job:localhost/replica:0/task:0/device:CPU:0\n")


def test_one_process_keeps_variables_in_its_server(tmp_path):
    done = run("one_process", tmp_path)
    log = done.log("worker:0")
    assert done.tasks == {"worker:0": "SUCCEEDED"}
    assert re.search(r"^the server listens at grpc://localhost:\d+$", log, re.MULTILINE)
    assert "the first session counts to 3\n" in log
    assert "the second continues and counts to 6\n" in log
    assert "a session without a server counts to 3\n" in log
    assert log.endswith("and leaves nothing to the next session\n")


def test_placement_puts_each_variable_and_op_on_its_task(tmp_path):
    done = run("placement", tmp_path)
    log = done.log("worker:0")
    assert done.tasks == {
        "ps:0": "STOPPED",
        "ps:1": "STOPPED",
        "worker:0": "SUCCEEDED",
        "worker:1": "STOPPED",
    }
    assert places(log) == {"slopes": "/job:ps/task:0", "offset": "/job:ps/task:1"}
    ran = {
        f"{job}:{index}": set(ops.split(", "))
        for job, index, ops in re.findall(
            r"^/job:(\w+)/replica:0/task:(\d)\S+ ran (.*)$", log, re.MULTILINE
        )
    }
    assert (
        ran["ps:0"]
        == ran["ps:1"]
        == {"VarHandleOp", "ReadVariableOp", "ResourceApplyGradientDescent"}
    )
    assert "MatMul" in ran["worker:1"]
    assert "MatMul" not in ran["worker:0"]
    assert losses(log)[0] > 1
    assert losses(log)[-1] < 0.01


def test_towers_learn_like_one_big_batch(tmp_path, serial):
    done = run("towers", tmp_path)
    log = done.log("worker:0")
    assert done.tasks == {"worker:0": "SUCCEEDED"}
    assert "weights on /device:CPU:0\ntowers on /device:CPU:1, /device:CPU:2\n" in log
    difference = float(re.search(r"differ from those of one big batch by at most (\S+)", log)[1])
    assert difference < 1e-5
    assert done.accuracy() >= serial.accuracy() - MARGIN


def test_model_parallel_learns_with_its_layers_on_two_tasks(tmp_path, serial):
    done = run("model_parallel", tmp_path)
    log = done.log("worker:0")
    assert done.tasks == {"worker:0": "SUCCEEDED", "worker:1": "STOPPED"}
    first, second = "/job:worker/task:0", "/job:worker/task:1"
    assert places(log) == {
        "convolution_1/kernel": first,
        "convolution_1/bias": first,
        "convolution_2/kernel": first,
        "convolution_2/bias": first,
        "dense/kernel": second,
        "dense/bias": second,
    }
    # One tensor and its gradient, and no other.
    assert re.search(r"two: convolution_2/MaxPool2d\S* \S+ .* and gradients/\S+ \(.*\)\n", log)
    assert done.accuracy() >= serial.accuracy() - MARGIN
    whole = list(done.checkpoints.glob("model.ckpt-400.data-*"))
    assert [file.name for file in whole] == ["model.ckpt-400.data-00000-of-00001"]


def test_all_local_variables_are_added_to_the_global_one(tmp_path):
    done = run("local_variables", tmp_path)
    assert_ended_by_themselves(done)
    for index in (0, 1):
        log = done.log(f"worker:{index}")
        assert places(log) == {"local": f"/job:worker/task:{index}", "total": "/job:ps/task:0"}
    for worker in done.ended_workers():
        assert done.log(worker).endswith("ended with a total of 1000\n")
    assert variables(done) == {"global_step": 200, "total": 1000}


def assert_ended_by_themselves(done):
    """Check that both workers have worked; one that exits long after the chief is stopped."""
    assert done.tasks["worker:1"] in ("SUCCEEDED", "STOPPED")
    assert done.tasks == {**done.tasks, "ps:0": "STOPPED", "worker:0": "SUCCEEDED"}


def variables(done):
    """Return the variables of the collected checkpoint."""
    return tensors.read(done.checkpoints / "model.ckpt-200")


def test_shared_variables_are_read_by_the_other_worker(tmp_path):
    done = run("shared_variables", tmp_path)
    assert_ended_by_themselves(done)
    assert exchanges(done.log("worker:0")) == [
        "assigned 41 to on_ps, on /job:ps/task:0",
        "assigned 42 to on_worker_1, on /job:worker/task:1",
        "read 43 from on_worker_0, on /job:worker/task:0",
    ]
    assert exchanges(done.log("worker:1")) == [
        "read 42 from on_worker_1, on /job:worker/task:1",
        "read 41 from on_ps, on /job:ps/task:0",
        "assigned 43 to on_worker_0, on /job:worker/task:0",
    ]


def exchanges(log):
    return re.findall(r"^(?:read|assigned) .*$", log, re.MULTILINE)
