"""Real checkpoints, read by the real TensorFlow on the chief's host before they are called good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .projects import Project
from .sshd import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
SAVE = """
import tensorflow as tf
steps = tf.Variable(0, dtype=tf.int64)
weights = tf.Variable(tf.random.uniform([2000]))
manager = tf.train.CheckpointManager(
    tf.train.Checkpoint(steps=steps, weights=weights), "checkpoints", max_to_keep=9)
for step in range(1, 5):
    steps.assign(step)
    manager.save(checkpoint_number=step)
"""
DATA = "ckpt-{}.data-00000-of-00001"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Project]:
    """A run whose chief has saved four checkpoints: one good, and three that look like it."""
    folder = tmp_path_factory.mktemp("verified")
    host = {
        "here": {
            "transport": "local", "workers": 1, "ports": free_ports(2), "python": sys.executable,
            "directory": str(folder / "host"),
        }
    }  # fmt: skip
    made = Project(folder / "project", host, flags=["--hold", "--steps=0"])
    made.ok("push")
    made.ok("start")
    work = made.work("worker:0")
    subprocess.run([sys.executable, "-c", SAVE], cwd=work, check=True, timeout=100)
    spoil(work / "checkpoints")
    yield made
    made.end()


def spoil(checkpoints: Path) -> None:
    truncated, flipped, missing = (checkpoints / DATA.format(step) for step in (4, 3, 2))
    os.truncate(truncated, truncated.stat().st_size // 2)
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    missing.unlink()


def test_the_newest_good_one_is_taken_and_the_bad_are_named(project):
    done = project.tf("collect", "--json", timeout_s=110)
    assert done.returncode == 0
    [taken] = json.loads(done.stdout)["checkpoints"]
    assert (taken["name"], taken["verified"]) == ("ckpt-1", True)
    assert (project.home / "checkpoints" / DATA.format(1)).is_file()
    for name in ("ckpt-4", "ckpt-3"):
        assert f"checkpoint {name} is broken there and was left: " in done.stderr
    assert "not verified" not in done.stderr


def test_of_all_the_bad_ones_stay_where_they_are(project):
    done = project.tf("collect", "--all", timeout_s=110)
    assert done.returncode == 0
    assert "checkpoints/ckpt-1\n" in done.stdout
    assert "ckpt-3 is broken" in done.stdout
    home = project.home / "checkpoints"
    assert sorted(os.listdir(home)) == ["checkpoint", DATA.format(1), "ckpt-1.index"]
