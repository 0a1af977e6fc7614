"""The recipe of trials: the best net of some comes home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import command_line
from support.host_python import tf_python
from support.recipes import copied_to, environment

pytestmark = pytest.mark.slow


def test_the_best_of_some_trials_learns_and_comes_home(tmp_path):
    copy = copied_to(tmp_path)
    env = environment(copy)
    env["PATH"] = f"{Path(tf_python()).parent}:{env['PATH']}"
    params = (
        "--param",
        "learning_rate=0.00001,0.01",
        "--param",
        "batch_size=64",
        "--param",
        "width=32",
    )
    done = command_line.run("trials", *params, "--json", cwd=copy / "trials", env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    table = json.loads(done.stdout)
    best, other = table["trials"]
    assert best["parameters"]["learning_rate"] == "0.01"
    assert best["value"] > 0.9 > other["value"]
    folder = copy / "trials" / "runs" / table["run"] / "outputs" / "trials"
    assert [model.parts[-3] for model in folder.glob("*/checkpoints/*.keras")] == ["1"]
    assert len([*folder.glob("*/log.csv")]) == 2
