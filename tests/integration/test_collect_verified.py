"""Real checkpoints are read by the real TensorFlow on the chief's host before they are fetched."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support import warm
from support.host_python import tf_python
from support.ports import free_ports
from support.projects import Project

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
    """A run whose chief has saved four checkpoints: a good one, and three damaged ones."""
    folder = tmp_path_factory.mktemp("verified")
    host = {
        "here": {
            "transport": "local", "workers": 1, "ports": free_ports(2), "python": tf_python(),
            "directory": str(folder / "host"),
        }
    }  # fmt: skip
    project = Project(folder / "project", host, flags=["--hold", "--steps=0"])
    project.ok("push")
    project.ok("start")
    work = project.work("worker:0")
    assert warm.run("-c", SAVE, cwd=work).returncode == 0
    damage(work / "checkpoints")
    yield project
    project.end()


def damage(checkpoints: Path) -> None:
    truncated, flipped, missing = (checkpoints / DATA.format(step) for step in (4, 3, 2))
    os.truncate(truncated, truncated.stat().st_size // 2)
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    missing.unlink()


def test_the_newest_good_checkpoint_is_fetched_and_bad_ones_are_reported(project):
    done = project.tf("collect", "--json")
    assert done.returncode == 0, done.stderr
    [checkpoint] = json.loads(done.stdout)["checkpoints"]
    assert (checkpoint["name"], checkpoint["verified"]) == ("ckpt-1", True)
    assert (project.run_folder / "checkpoints" / DATA.format(1)).is_file()
    for name in ("ckpt-4", "ckpt-3"):
        assert f"checkpoint {name} is broken on its host and was not fetched: " in done.stderr
    assert "not verified" not in done.stderr


def test_with_all_the_bad_checkpoints_stay_on_the_host(project):
    done = project.tf("collect", "--all")
    assert done.returncode == 0, done.stderr
    assert "checkpoints/ckpt-1\n" in done.stdout
    assert "ckpt-3 is broken" in done.stdout
    folder = project.run_folder / "checkpoints"
    assert sorted(os.listdir(folder)) == ["checkpoint", DATA.format(1), "ckpt-1.index"]


def test_a_resume_replaces_what_tensorflow_cannot_read_by_what_was_collected(project):
    """The task still ran when its files were damaged: their times say nothing."""
    work = project.work("worker:0")
    assert warm.run("-c", SAVE.replace('"checkpoints"', '"backup"'), cwd=work).returncode == 0
    whole = {step: (work / "backup" / DATA.format(step)).read_bytes() for step in range(1, 5)}
    project.ok("collect")
    damage(work / "backup")
    project.ok("stop")
    done = project.tf("resume")
    assert done.returncode == 0, done.stderr
    found = {step: (work / "backup" / DATA.format(step)).read_bytes() for step in range(1, 5)}
    assert found == whole
    for name in ("backup/ckpt-4", "backup/ckpt-3"):
        assert f"{name} on here is damaged: " in done.stderr
    assert "the collected copy replaces it" in done.stderr
    assert "ckpt-4 on here is damaged: " in done.stderr
    assert "resumes from ckpt-1 on here" in done.stdout
