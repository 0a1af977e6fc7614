"""What a program writes outside of its task's directory is found, whichever library writes it."""

import os
import subprocess
from pathlib import Path

import pytest
from separate_machines import SCRIPTS, environment
from support.builders import make_launch
from support.host_python import tf_python

import tfdeploy
from tfdeploy.agent.outputs.saves import Saves

LIBRARY = Path(tfdeploy.__file__).parent / "inside" / "preload" / f"{os.uname().machine}.so"
NAMES = {
    *("saver", "checkpoint", "manager", "model.keras", "only.weights.h5", "tf_keras"),
    *("old.weights.h5", "summary", "file_writer"),
    *("arrays.npz", "object.pkl", "command.txt", "after_chdir.csv"),
}


@pytest.mark.slow
def test_every_way_to_save_is_found(tmp_path):
    """In an interpreter of its own: the library is loaded when a process starts."""
    task_dir, out = Path(os.path.realpath(tmp_path)) / "run" / "task", tmp_path / "out"
    (task_dir / "work").mkdir(parents=True)
    out.mkdir()
    variables = {"LD_PRELOAD": str(LIBRARY), "TFDEPLOY_SAVES": str(task_dir / "saves")}
    script = [tf_python(), SCRIPTS / "save_elsewhere.py", out]
    done = subprocess.run(
        script, cwd=task_dir / "work", env=environment(**variables), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found, more = Saves(str(task_dir), make_launch()).elsewhere()
    assert {os.path.relpath(saved.path, os.path.realpath(out)) for saved in found} == NAMES
    assert (all(saved.exists for saved in found), more) == (True, 0)
