"""Recipes of the examples on separate machines: what they share is the network, and no files."""

from __future__ import annotations

import json
import re
import shutil
import tomllib

import pytest
from examples.recipes import EXAMPLES, Done
from integration.projects import toml

from .conftest import SSH_CONFIG, Project, ssh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MACHINES = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
SYNCHRONOUS = {"worker:0": "SUCCEEDED", "worker:1": "SUCCEEDED", "ps:0": "STOPPED"}
# Nothing makes an asynchronous chief wait, and who is still about to leave is stopped.
ASYNCHRONOUS = (SYNCHRONOUS, {**SYNCHRONOUS, "worker:1": "STOPPED"})


@pytest.fixture
def run(tmp_path):
    """`tfdeploy run` of a recipe as it stands, with these machines in place of its own."""

    def run(recipe: str, machines: dict[str, dict]) -> Done:
        copy = tmp_path / "examples"
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("runs", "__pycache__"))
        said = tomllib.loads((copy / recipe / "hosts.toml").read_text())
        hosts = {name: {"address": name, **tasks} for name, tasks in machines.items()}
        defaults = {"python": "/opt/python/bin/python"}
        here = {**said, "ssh_config": str(SSH_CONFIG), "defaults": defaults, "hosts": hosts}
        order = ("project", "ssh_config", "training", "source", "defaults", "hosts")
        (copy / recipe / "hosts.toml").write_text(toml({key: here[key] for key in order}))
        done = Project(copy / recipe).tfdeploy("run", "--json", timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        return Done(recipe, copy, json.loads(done.stdout))

    return run


def test_synchronous_replicas_on_three_machines(run):
    done = run("sync_replicas", MACHINES)
    assert done.tasks == SYNCHRONOUS
    assert "weights on /job:ps/task:0\n" in done.log("worker:0")
    for task in ("worker:0", "worker:1"):
        assert "stopped at step 300 after 300 of my own" in done.log(task)
    assert done.accuracy() >= 0.93


def test_an_evaluator_on_another_machine_than_the_chief(run):
    done = run("evaluator", {**MACHINES, "ps1": {"evaluator": True}})
    assert done.tasks.pop("evaluator:0") == "SUCCEEDED"
    assert done.tasks in ASYNCHRONOUS
    assert done.accuracy() >= 0.93
    said = done.log("evaluator:0")
    steps = [int(step) for step in re.findall(r"^evaluated step (\d+)", said, re.MULTILINE)]
    assert steps[-1] >= 600
    folder = f"~/.tfdeploy/evaluator/runs/{done.said['run']}/evaluator-0/work"
    assert "events.out.tfevents" in ssh("ps1", f"ls {folder}/evaluation")


def test_downpour_on_three_machines(run):
    done = run("downpour", MACHINES)
    assert done.tasks in ASYNCHRONOUS
    assert done.accuracy() >= 0.88
