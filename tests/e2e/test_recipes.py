"""A recipe of the examples on separate hosts that share only the network."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from support.projects import toml
from support.recipes import EXAMPLES, RecipeRun

from .conftest import SSH_CONFIG, Project, ssh

pytestmark = pytest.mark.slow

MACHINES = {
    "ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}, "ps1": {"evaluator": True}
}  # fmt: skip
ALL_ENDED = {"worker:0": "SUCCEEDED", "worker:1": "SUCCEEDED", "ps:0": "STOPPED"}
# A chief does not wait for the others to exit: a worker that exits long after it is stopped.
ENDED = (ALL_ENDED, {**ALL_ENDED, "worker:1": "STOPPED"})


def test_an_evaluator_on_another_machine_than_the_chief(tmp_path):
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    (copy / ".git").mkdir()  # as in a clone: recipes read the folder above their own
    own = tomllib.loads((copy / "evaluator" / "hosts.toml").read_text())
    hosts = {name: {"address": name, **tasks} for name, tasks in MACHINES.items()}
    defaults = {"python": "/opt/python/bin/python"}
    own["training"]["ready_timeout_s"] = 900
    table = {**own, "ssh_config": str(SSH_CONFIG), "defaults": defaults, "hosts": hosts}
    order = ("project", "ssh_config", "training", "source", "defaults", "hosts")
    (copy / "evaluator" / "hosts.toml").write_text(toml({key: table[key] for key in order}))
    process = Project(copy / "evaluator").tfdeploy("run", "--json")
    assert process.returncode == 0, process.stdout + process.stderr
    report = json.loads(process.stdout)
    done = RecipeRun("evaluator", copy, report["tasks"], Path(report["collected"]))
    assert done.tasks.pop("evaluator:0") == "SUCCEEDED"
    assert done.tasks in ENDED
    assert done.accuracy() >= 0.93
    log = done.log("evaluator:0")
    steps = [int(step) for step in re.findall(r"^evaluated step (\d+)", log, re.MULTILINE)]
    assert steps[-1] >= 600
    folder = f"~/.tfdeploy/evaluator/runs/{report['run']}/evaluator-0/work"
    assert "events.out.tfevents" in ssh("ps1", f"ls {folder}/evaluation")
