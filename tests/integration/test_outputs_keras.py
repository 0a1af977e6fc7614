"""What real Keras programs write is fetched automatically, and can be loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support import warm
from support.host_python import tf_python
from support.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

# As in Keras' own guides: nothing in it is specific to tfdeploy.
PROGRAM = """
import os
import sys

import numpy as np
import {keras} as keras

x = np.random.rand(64, 4).astype("float32")
model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), epochs=2, verbose=2, callbacks=[
    keras.callbacks.ModelCheckpoint("checkpoints/best.keras"),
    keras.callbacks.ModelCheckpoint("w{epoch}.weights.h5", save_weights_only=True),
    keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False),
    keras.callbacks.CSVLogger("history.csv"),
])
model.save("model.keras")
model.export("export")
"""
LOAD = """
import {keras} as keras
import tensorflow as tf

model = keras.models.load_model("model.keras")
keras.models.load_model("checkpoints/best.keras")
model.load_weights("w2.weights.h5")
exported = tf.saved_model.load("export")  # its variables live as long as it does
assert exported.serve(tf.zeros([1, 4])).shape == (1, 1)
"""


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def project(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    host = {
        "transport": "local", "workers": 1, "ports": "auto", "python": tf_python(),
        "directory": str(folder / "host"),
    }  # fmt: skip
    training = {"role": "tf_config", "ready_timeout_s": 600}
    project = Project(folder / "project", {"here": host}, training=training)
    (project.folder / "train.py").write_text(PROGRAM.replace("{keras}", request.param))
    project.keras = request.param
    project.output = project.ok("run")
    yield project
    project.end()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_each_keras_format_is_fetched_and_can_be_loaded(project):
    folder = project.run_folder / "outputs"
    models = {"model.keras", "checkpoints/best.keras", "w1.weights.h5", "w2.weights.h5"}
    assert {*models, "history.csv", "export/saved_model.pb"} <= files(folder)
    assert any(name.startswith("backup/") for name in files(folder))
    assert project.output.endswith(" succeeded\n")
    assert "skipped on" not in project.output
    load = LOAD.replace("{keras}", project.keras)
    loaded = warm.run("-c", load, cwd=folder)
    assert loaded.returncode == 0, loaded.stderr


def test_prune_loses_nothing_that_was_collected(project):
    [line] = json.loads(project.ok("runs", "--json"))["runs"]
    assert line["results"] == line["results_collected"] > 5
    before = files(project.run_folder)
    assert "\nfreed " in project.ok("prune", "--keep", "0")
    assert files(project.run_folder) == before
