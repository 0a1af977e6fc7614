"""The example trains without tfdeploy, on loopback, with one filesystem for all tasks."""

from __future__ import annotations

import gzip
import importlib.util
import json
import struct
import subprocess
from pathlib import Path

import pytest
from support import warm
from support.host_python import tf_python
from support.ports import free_addresses

from tfdeploy.config import inventory

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def need(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@pytest.fixture(scope="module")
def data():
    need("numpy")
    # Loaded by its path: a module named "data" should not be importable in other tests.
    spec = importlib.util.spec_from_file_location("digits_data", DIGITS / "data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The data


@pytest.mark.parametrize("count", [1, 10, 1797])
def test_every_example_is_in_train_or_test_and_none_in_both(data, count):
    parts = data.split(count)
    assert sorted([*parts["train"], *parts["test"]]) == list(range(count))


def test_every_task_draws_the_same_split(data):
    assert data.split(1797)["test"][:5].tolist() == [130, 1174, 265, 531, 309]


def test_the_digits_are_scaled_from_0_to_1(data):
    train, test = data.load("train"), data.load("test")
    assert (len(train.labels), len(test.labels)) == (1438, 359)
    assert train.images.shape == (1438, 8, 8)
    assert (train.images.min(), train.images.max()) == (0, 1)


def test_batches_differ_between_workers_and_not_between_runs(data):
    import numpy as np

    examples = data.Examples(np.zeros((50, 2, 2), np.float32), np.arange(50))
    first, again, other = (next(data.batches(examples, 8, seed)) for seed in (0, 0, 1))
    assert first.labels.tolist() == again.labels.tolist() != other.labels.tolist()


def test_in_order_gives_every_example_once(data):
    import numpy as np

    examples = data.Examples(np.zeros((5, 2, 2), np.float32), np.arange(5))
    parts = [part.labels.tolist() for part in data.in_order(examples, 2)]
    assert parts == [[0, 1], [2, 3], [4]]


# MNIST's files


def idx(*sizes, values):
    return struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + bytes(values)


def write_mnist(directory, images, labels, part="train"):
    """Write the images plain and the labels compressed; both kinds may be in one folder."""
    (directory / f"{part}-images-idx3-ubyte").write_bytes(images)
    (directory / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def test_mnist_is_read_plain_and_compressed(data, tmp_path):
    write_mnist(tmp_path, idx(2, 2, 2, values=[0, 255, 51, 0, 0, 0, 0, 102]), idx(2, values=[7, 3]))
    examples = data.load("train", tmp_path)
    assert examples.side == 2
    assert examples.labels.tolist() == [7, 3]
    assert examples.images[0].ravel().tolist() == pytest.approx([0, 1, 0.2, 0])


def test_images_and_labels_of_different_count_are_refused(data, tmp_path):
    write_mnist(tmp_path, idx(2, 1, 1, values=[0, 1]), idx(3, values=[7, 3, 1]))
    with pytest.raises(data.DataError, match="train images and labels do not match"):
        data.load("train", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(idx(3, values=[1, 2]), id="cut off"),
        pytest.param(b"<html>not found</html>", id="a web page"),
        pytest.param(b"\0\0\x0d" + idx(1, values=[1])[3:], id="floats"),
    ],
)
@pytest.mark.parametrize("name", ["labels", "labels.gz"])
def test_what_is_no_idx_file_is_named(data, tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(data.DataError, match=f"{name} is not a complete idx file"):
        data.read_idx(file)


def test_a_directory_without_mnist_is_refused_in_one_sentence(data, tmp_path):
    with pytest.raises(data.DataError) as refused:
        data.load("test", tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} holds neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz: "
        "--data-dir must be a directory with mnist.npz or MNIST's four idx files"
    )


# The files for tfdeploy


@pytest.mark.parametrize("name", ["hosts.toml", "hosts.ssh.toml"])
def test_the_inventories_are_valid(name):
    loaded = inventory.load(DIGITS / name)
    assert loaded.project == "digits"
    assert (DIGITS / loaded.training.command[1]).is_file()


# The programs


def python(script, *args, cwd):
    return warm.run(DIGITS / script, *args, cwd=cwd)


@pytest.mark.slow
def test_eval_without_a_checkpoint_fails_with_one_sentence(tmp_path):
    need("tensorflow")
    done = python("eval.py", "nothing-here", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "eval.py: nothing-here holds no checkpoint: train first\n"


@pytest.mark.slow
def test_train_refuses_unknown_arguments(tmp_path):
    need("tensorflow")
    role = ["--job_name=worker", "--ps_hosts=a:1", "--worker_hosts=b:1"]
    unknown = python("train.py", *role, "--task_index=0", "--stepz=1", cwd=tmp_path)
    beyond = python("train.py", *role, "--task_index=1", cwd=tmp_path)
    assert (unknown.returncode, beyond.returncode) == (2, 2)
    assert "unrecognized arguments: --stepz=1" in unknown.stderr
    assert "--task_index=1, but worker_hosts names 1" in beyond.stderr


class Cluster:
    """One ps and two workers on loopback, all in one directory."""

    def __init__(self, directory):
        self.directory = directory
        ps, *workers = free_addresses(3)
        self.hosts = [f"--ps_hosts={ps}", f"--worker_hosts={','.join(workers)}"]

    def start(self, job, index):
        role = [f"--job_name={job}", f"--task_index={index}"]
        return warm.start(DIGITS / "train.py", *role, *self.hosts, cwd=self.directory)

    def finish(self, process, job, index):
        """Wait until the task has succeeded, and return what it has printed."""
        code = process.wait()
        log = process.output + process.errors
        assert code == 0, f"{job} {index}: {code}\n{log}"
        return log


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A cluster whose two workers have ended, and whose ps still runs."""
    need("tensorflow")
    cluster = Cluster(tmp_path_factory.mktemp("digits"))
    ps = cluster.start("ps", 0)
    workers = [cluster.start("worker", index) for index in (0, 1)]
    try:
        cluster.logs = [cluster.finish(w, "worker", index) for index, w in enumerate(workers)]
        yield cluster
    finally:
        for process in (*workers, ps):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_both_workers_train_and_end_by_themselves(trained):
    for log in trained.logs:
        assert " loss " in log
        assert "stopped at step " in log


@pytest.mark.slow
def test_the_trained_net_reads_digits(trained):
    words = ["checkpoints", "--min-accuracy", "0.93", "--json"]
    # A new interpreter, because eval.py must print no error while it imports TensorFlow.
    done = subprocess.run(
        [tf_python(), DIGITS / "eval.py", *words],
        cwd=trained.directory,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["accuracy"] >= 0.93
    assert result["step"] >= 600
    assert done.stderr == ""


@pytest.mark.slow
def test_a_checkpoint_is_found_in_a_copied_folder(trained, tmp_path):
    copy = tmp_path / "copy"
    (trained.directory / "checkpoints").rename(copy)  # Absolute names within lead nowhere now.
    try:
        done = python("eval.py", copy, "--min-accuracy=1.1", cwd=tmp_path)
    finally:
        copy.rename(trained.directory / "checkpoints")
    assert done.returncode == 1
    assert f"(from {copy}/model.ckpt-" in done.stdout
    assert done.stderr == "eval.py: that is below 1.1\n"


@pytest.mark.slow
def test_a_checkpoint_of_other_data_is_refused_in_one_sentence(trained, tmp_path):
    # TensorFlow restores variables of another shape without a word, and fails when they are used.
    write_mnist(tmp_path, idx(1, 28, 28, values=[0] * 784), idx(1, values=[7]), part="t10k")
    done = python("eval.py", "checkpoints", "--data-dir", tmp_path, cwd=trained.directory)
    assert done.returncode == 2
    assert "does not fit this net" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_worker_that_starts_after_all_others_ended_ends_at_once(trained):
    late = trained.start("worker", 1)
    log = trained.finish(late, "worker", 1)
    assert "own steps: 1\n" in log
