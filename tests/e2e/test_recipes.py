"""Recipes of the examples on separate hosts that share only the network."""

from __future__ import annotations

import json
import re
import shutil
import tomllib

import pytest
from support.projects import toml
from support.recipes import EXAMPLES, RecipeRun

from .conftest import SSH_CONFIG, Project, ssh

pytestmark = pytest.mark.slow

MACHINES = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
ALL_ENDED = {"worker:0": "SUCCEEDED", "worker:1": "SUCCEEDED", "ps:0": "STOPPED"}
# A chief does not wait for the others to exit: a worker that exits long after it is stopped.
ENDED = (ALL_ENDED, {**ALL_ENDED, "worker:1": "STOPPED"})


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a recipe on the given hosts instead of its own."""

    def run(recipe: str, machines: dict[str, dict]) -> RecipeRun:
        copy = tmp_path / "examples"
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        (copy / ".git").mkdir()  # as in a clone: recipes read the folder above their own
        own = tomllib.loads((copy / recipe / "hosts.toml").read_text())
        hosts = {name: {"address": name, **tasks} for name, tasks in machines.items()}
        defaults = {"python": "/opt/python/bin/python"}
        own["training"]["ready_timeout_s"] = 900
        table = {**own, "ssh_config": str(SSH_CONFIG), "defaults": defaults, "hosts": hosts}
        order = ("project", "ssh_config", "training", "source", "defaults", "hosts")
        (copy / recipe / "hosts.toml").write_text(toml({key: table[key] for key in order}))
        done = Project(copy / recipe).tfdeploy("run", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return RecipeRun(recipe, copy, json.loads(done.stdout))

    return run


def test_synchronous_replicas_on_three_machines(run):
    done = run("sync_replicas", MACHINES)
    assert done.tasks in ENDED
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    for task in done.ended_workers():
        assert re.search(r"^stopped at step 300 in .*, own steps: 300$", done.log(task), re.M)
    assert done.accuracy() >= 0.93


def test_an_evaluator_on_another_machine_than_the_chief(run):
    done = run("evaluator", {**MACHINES, "ps1": {"evaluator": True}})
    assert done.tasks.pop("evaluator:0") == "SUCCEEDED"
    assert done.tasks in ENDED
    assert done.accuracy() >= 0.93
    log = done.log("evaluator:0")
    steps = [int(step) for step in re.findall(r"^evaluated step (\d+)", log, re.MULTILINE)]
    assert steps[-1] >= 600
    folder = f"~/.tfdeploy/evaluator/runs/{done.report['run']}/evaluator-0/work"
    assert "events.out.tfevents" in ssh("ps1", f"ls {folder}/evaluation")


def test_downpour_on_three_machines(run):
    done = run("downpour", MACHINES)
    assert done.tasks in ENDED
    assert done.accuracy() >= 0.7  # A delayed worker's old gradients have cost 0.14. Chance is 0.1.
