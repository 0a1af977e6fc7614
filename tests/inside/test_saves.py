"""Where a program saves outside of its task's directory is recorded, whichever API it uses."""

import json
import os
import subprocess
import sys

import pytest
from separate_machines import SCRIPTS, environment
from support.host_python import tf_python


@pytest.fixture
def recorded(tmp_path, inside):
    """A function that runs a program in a task's directory and returns the paths that it
    recorded."""
    work = tmp_path / "task" / "work"
    work.mkdir(parents=True)

    def run(*command, path=()):
        record = tmp_path / "task" / "saves.json"
        env = environment(inside, *path, TFDEPLOY_SAVES=str(record))
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "tfdeploy:" not in done.stderr
        return json.loads(record.read_text()) if record.exists() else None

    return run


STUB = """
def save_model(model, filepath, overwrite=True):
    assert overwrite
    return "saved"
def save_weights(model, filepath):
    raise OSError("no space left")
"""


@pytest.fixture
def keras(tmp_path):
    """A function that makes a package with the modules and functions by which Keras saves."""

    def make(name):
        folder = tmp_path / "packages" / name / "src" / "saving"
        folder.mkdir(parents=True)
        for package in (folder, folder.parent, folder.parent.parent):
            (package / "__init__.py").touch()
        (folder / "saving_api.py").write_text(STUB)
        return tmp_path / "packages"

    return make


PROGRAM = """
import contextlib, pathlib, sys
from {name}.src.saving import saving_api
from {name}.src.saving.saving_api import save_model
for path in sys.argv[1:]:
    assert save_model(None, filepath=path) == "saved"
    assert saving_api.save_model(None, pathlib.Path(path)) == "saved"
with contextlib.suppress(OSError):
    saving_api.save_weights(None, "/never/saved.weights.h5")
save_model(None, sys.stdout)
"""


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_path_outside_of_the_tasks_directory_is_recorded_once(recorded, keras, tmp_path, name):
    code = PROGRAM.format(name=name)
    paths = [
        "/scratch/a.keras",
        "own.keras",
        f"{tmp_path}/task/work/b.keras",
        "gs://bucket/c.keras",
    ]
    saved = recorded(sys.executable, "-c", code, *paths, "../beside.keras", path=[keras(name)])
    assert saved == ["/scratch/a.keras", os.path.realpath(tmp_path / "task/beside.keras")]


def test_the_newest_paths_are_kept_also_after_a_restart(recorded, keras):
    code, path = PROGRAM.format(name="keras"), [keras("keras")]
    fifteen = [f"/m/{number}.keras" for number in range(15)]
    recorded(sys.executable, "-c", code, "/first.keras", path=path)
    saved = recorded(sys.executable, "-c", code, *fifteen, path=path)
    assert saved == ["/first.keras", *fifteen]
    saved = recorded(sys.executable, "-c", code, "/last.keras", path=path)
    assert saved == [*fifteen, "/last.keras"]


def test_a_program_that_saves_in_its_own_directory_records_nothing(recorded, keras):
    code = PROGRAM.format(name="keras")
    assert recorded(sys.executable, "-c", code, "own.keras", path=[keras("keras")]) is None


@pytest.mark.slow
def test_every_way_to_save_with_tensorflow_and_keras_is_recorded(recorded, tmp_path):
    saved = recorded(tf_python(), str(SCRIPTS / "save_elsewhere.py"), str(tmp_path / "out"))
    names = ["saver", "checkpoint", "manager", "model.keras", "only.weights.h5", "tf_keras"]
    assert saved == [os.path.realpath(tmp_path / "out" / name) for name in names]
