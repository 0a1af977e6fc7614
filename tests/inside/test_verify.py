"""Damage of every kind to a checkpoint is seen, and a whole one of any kind is called whole."""

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from separate_machines import INSIDE, SCRIPTS, environment

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
        [sys.executable, "-c", CALL, str(inside), *map(str, prefixes)],
        env=environment(*path),
        capture_output=True,
        text=True,
        timeout=100,
    )


def verdicts(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A directory of good checkpoints, one of each kind."""
    home = tmp_path_factory.mktemp("whole")
    command = [sys.executable, str(SCRIPTS / "save_kinds.py")]
    subprocess.run(command, cwd=home, env=environment(), check=True, timeout=100)
    return home


def flip(path, where=0.5):
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * where))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def empty(path):
    os.truncate(path, 0)


DAMAGES = [
    (cut, INDEX), (empty, INDEX), (flip, INDEX), (os.unlink, INDEX),
    (cut, FIRST), (empty, FIRST), (flip, FIRST), (os.unlink, FIRST),
    (cut, SECOND), (empty, SECOND), (flip, SECOND), (os.unlink, SECOND),
]  # fmt: skip


@pytest.mark.slow
def test_whole_checkpoints_of_every_kind_are_read_to_the_last_tensor(whole, inside):
    done = verify(inside, *(whole / kind for kind in KINDS))
    assert (done.returncode, done.stderr) == (0, "")
    assert verdicts(done) == [
        {"prefix": str(whole / kind), "tensors": count} for kind, count in KINDS.items()
    ]


@pytest.mark.slow
def test_every_damage_is_told_in_one_line_and_hides_no_other_verdict(whole, inside, tmp_path):
    prefixes = []
    for number, (damage, end) in enumerate(DAMAGES):
        copy = tmp_path / str(number)
        shutil.copytree(whole / "sharded", copy)
        damage(copy / ("model" + end))
        prefixes.append(copy / "model")
    done = verify(inside, *prefixes, tmp_path / "no such", whole / "sharded/model")
    assert (done.returncode, done.stderr) == (0, "")
    *bad, good = verdicts(done)
    assert [one["prefix"] for one in bad] == [*map(str, prefixes), str(tmp_path / "no such")]
    assert [one for one in bad if not one.get("error") or "\n" in one["error"]] == []
    assert good["tensors"] == KINDS["sharded/model"]


@pytest.mark.slow
def test_every_part_of_the_data_counts(whole, inside, tmp_path):
    """Partitions, strings, iterators and the object graph have checksums of their own kinds."""
    parts = [part / 20 for part in range(20)]
    for part in parts:
        shutil.copytree(whole / "objects", tmp_path / str(part))
        flip(tmp_path / str(part) / "ckpt-1.data-00000-of-00001", part)
    done = verify(inside, *(tmp_path / str(part) / "ckpt-1" for part in parts))
    assert (done.returncode, done.stderr) == (0, "")
    assert [one for one in verdicts(done) if "error" not in one] == []
    assert len(verdicts(done)) == len(parts)


def test_a_host_without_tensorflow_is_told_in_one_line(inside, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no such\\nlibrary')")
    done = verify(inside, "any", path=[tmp_path])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "TensorFlow can't be imported: ImportError: no such library\n"


def test_nothing_but_the_standard_library_is_loaded_before_it_is_asked(inside):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tfdeploy_verify; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(inside)], capture_output=True, text=True, timeout=30
    )
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names - sys.stdlib_module_names == {"__main__", "tfdeploy_verify"}


# TensorFlow crashes at some flipped bits of an iterator's saved state; here, at any.


def test_a_crash_is_a_verdict(capfd):
    def crashes(prefix):
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)

    assert tfdeploy_verify._judge_apart(crashes, "ckpt-1")
    told = json.loads(capfd.readouterr().out)
    assert told == {"prefix": "ckpt-1", "error": "TensorFlow crashed as it read it, with SIGSEGV"}


def test_too_little_memory_is_none(capfd):
    def is_killed(prefix):
        os.kill(os.getpid(), signal.SIGKILL)

    def does_not_fit(prefix):
        raise MemoryError

    assert not tfdeploy_verify._judge_apart(is_killed, "ckpt-1")
    assert not tfdeploy_verify._judge_apart(does_not_fit, "ckpt-2")
    said = capfd.readouterr()
    assert said.out == ""
    assert [line.partition(":")[0] for line in said.err.splitlines()] == ["ckpt-1", "ckpt-2"]
