"""Damage of every kind to a checkpoint is found, and complete checkpoints are accepted."""

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from separate_machines import INSIDE, SCRIPTS, environment
from support import warm
from support.host_python import tf_python

sys.path.insert(0, str(INSIDE))
import tfdeploy_verify

CALL = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import tfdeploy_verify;"
    " sys.exit(tfdeploy_verify.main(sys.argv[1:]))"
)
KINDS = {"objects/ckpt-1": 10, "sharded/model": 2}
INDEX, FIRST, SECOND = ".index", ".data-00000-of-00002", ".data-00001-of-00002"


def verify(inside, *prefixes, path=()):
    return subprocess.run(
        [tf_python(), "-c", CALL, str(inside), *map(str, prefixes)],
        env=environment(*path),
        capture_output=True,
        text=True,
    )


def results(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A directory of good checkpoints, one of each kind."""
    home = tmp_path_factory.mktemp("whole")
    done = warm.run(SCRIPTS / "save_kinds.py", cwd=home)
    assert done.returncode == 0, done.stderr
    return home


def flip(path, where=0.5):
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * where))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def empty(path):
    os.truncate(path, 0)


DAMAGES = [
    (truncate, INDEX), (empty, INDEX), (flip, INDEX), (os.unlink, INDEX),
    (truncate, FIRST), (empty, FIRST), (flip, FIRST), (os.unlink, FIRST),
    (truncate, SECOND), (empty, SECOND), (flip, SECOND), (os.unlink, SECOND),
]  # fmt: skip


@pytest.mark.slow
def test_complete_checkpoints_of_every_kind_are_read_to_the_last_tensor(whole, inside):
    done = verify(inside, *(whole / kind for kind in KINDS))
    assert (done.returncode, done.stderr) == (0, "")
    assert results(done) == [
        {"prefix": str(whole / kind), "tensors": count} for kind, count in KINDS.items()
    ]


@pytest.mark.slow
def test_each_damaged_checkpoint_is_reported_in_one_line(whole, inside, tmp_path):
    prefixes = []
    for number, (damage, end) in enumerate(DAMAGES):
        copy = tmp_path / str(number)
        shutil.copytree(whole / "sharded", copy)
        damage(copy / ("model" + end))
        prefixes.append(copy / "model")
    done = verify(inside, *prefixes, tmp_path / "no such", whole / "sharded/model")
    assert (done.returncode, done.stderr) == (0, "")
    *bad, good = results(done)
    assert [one["prefix"] for one in bad] == [*map(str, prefixes), str(tmp_path / "no such")]
    assert [one for one in bad if not one.get("error") or "\n" in one["error"]] == []
    assert good["tensors"] == KINDS["sharded/model"]


@pytest.mark.slow
def test_damage_to_any_part_of_the_data_is_found(whole, inside, tmp_path):
    """Partitions, strings, iterators and the object graph have checksums of their own kinds."""
    parts = [part / 20 for part in range(20)]
    for part in parts:
        shutil.copytree(whole / "objects", tmp_path / str(part))
        flip(tmp_path / str(part) / "ckpt-1.data-00000-of-00001", part)
    done = verify(inside, *(tmp_path / str(part) / "ckpt-1" for part in parts))
    assert (done.returncode, done.stderr) == (0, "")
    assert [one for one in results(done) if "error" not in one] == []
    assert len(results(done)) == len(parts)


@pytest.mark.slow
def test_only_the_reader_is_imported_of_tensorflow(whole, inside):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tfdeploy_verify;"
        " load = tfdeploy_verify._import_reader();"
        " print(len(load(sys.argv[2]).get_variable_to_dtype_map()), 'keras' in sys.modules)"
    )
    done = subprocess.run(
        [tf_python(), "-c", code, str(inside), str(whole / "sharded/model")],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == f"{KINDS['sharded/model']} False\n", done.stderr


def test_tensorflow_is_imported_if_its_reader_can_not_be_found(inside, tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("whole = True")
    reader = "class Reader:\n get_variable_to_dtype_map = dict\n"
    load = "def load_checkpoint(prefix):\n import tensorflow\n assert tensorflow.whole\n"
    (package / "train.py").write_text(f"{reader}{load} return Reader()")
    done = verify(inside, "any", path=[tmp_path])
    assert (done.returncode, done.stderr) == (0, "")
    assert results(done) == [{"prefix": "any", "tensors": 0}]


def test_a_host_without_tensorflow_is_reported_in_one_line(inside, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no such\\nlibrary')")
    done = verify(inside, "any", path=[tmp_path])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "TensorFlow can't be imported: ImportError: no such library\n"


def test_importing_tfdeploy_verify_loads_only_the_standard_library(inside):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tfdeploy_verify; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(inside)], capture_output=True, text=True
    )
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names - sys.stdlib_module_names == {"__main__", "tfdeploy_verify"}


# TensorFlow crashes at some flipped bits of an iterator's saved state. Here the reader itself does.


def test_a_crash_of_tensorflow_is_reported_as_an_error(capfd):
    def crashes(prefix):
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)

    assert tfdeploy_verify._verify_in_child(crashes, "ckpt-1")
    error = "TensorFlow crashed with SIGSEGV while it read it"
    assert json.loads(capfd.readouterr().out) == {"prefix": "ckpt-1", "error": error}


def test_too_little_memory_is_not_reported_as_an_error_of_the_checkpoint(capfd):
    def is_killed(prefix):
        os.kill(os.getpid(), signal.SIGKILL)

    def does_not_fit(prefix):
        raise MemoryError

    assert not tfdeploy_verify._verify_in_child(is_killed, "ckpt-1")
    assert not tfdeploy_verify._verify_in_child(does_not_fit, "ckpt-2")
    printed = capfd.readouterr()
    assert printed.out == ""
    assert [line.partition(":")[0] for line in printed.err.splitlines()] == ["ckpt-1", "ckpt-2"]
