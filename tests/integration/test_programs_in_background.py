"""A script that ends with `nohup python train.py &`: the run goes on until the training ends."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow
RUN = '#!/bin/sh\nnohup python train.py "$@" > train.log 2>&1 &\n'
TRAIN = """
import os, sys, time
while os.path.exists("../hold") and not os.path.exists("go"):
    time.sleep(0.02)
print("trained", flush=True)
open("model.txt", "w").write("a model")
sys.exit({})
"""
SAID = "run.sh exited and left python train.py"


@pytest.fixture
def project(local):
    """Create a project whose only task is `sh run.sh`, and trains until the file `go` exists."""

    def create(exit_code=0, **training):
        host = {name: value for name, value in local.hosts()["here"].items() if name != "ps"}
        training = {"command": ["sh", "run.sh"], "ready": "process", **training}
        hosts = {"here": {**host, "workers": 1}}
        top = {"restart": {"attempts": 0}, "trials": {"slots_per_host": 1}}
        created = local.project(hosts=hosts, top=top, training=training)
        (created.folder / "run.sh").write_text(RUN)
        text = TRAIN.format(exit_code)
        (created.folder / "train.py").write_text(
            text.replace("../hold", str(created.folder / "hold"))
        )
        return created

    return create


def test_a_run_succeeds_when_its_training_in_the_background_does(project):
    run = project()
    (run.folder / "hold").touch()
    with run.start_command("run") as command:
        command.wait_for_output(f"  {SAID}")
        (task,) = run.status().values()
        assert task["state"] == "READY"
        assert "train.py" in run.processes()[task["pid"]]
        assert task["reason"].startswith(SAID)
        (run.work("worker:0") / "go").touch()
        assert command.process.wait() == 0, command.output
    assert command.output.count(f"[tfdeploy: {SAID}") == 1
    assert (run.run_folder / "outputs" / "model.txt").read_text() == "a model"
    assert "trained" in (run.run_folder / "outputs" / "train.log").read_text()


def test_a_run_fails_with_the_exit_code_of_its_training_in_the_background(project):
    run = project(exit_code=9)
    done = run.tf("run")
    assert done.returncode == 9, done.stdout + done.stderr
    assert "error: worker:0 on here: it ended: exit 9" in done.stderr


def test_a_training_in_the_background_is_stopped_or_ends_after_max_duration_s(project):
    run = project(max_duration_s=3)
    (run.folder / "hold").touch()
    done = run.tf("run")
    assert done.returncode == 0
    assert "ended after max_duration_s" in done.stdout
    assert run.processes() == {}
    run.training.pop("max_duration_s")
    run.write()
    run.ok("start")
    run.ok("stop")
    assert run.processes() == {}


def test_a_trial_that_goes_on_in_the_background_ends_before_the_next_one(project):
    run = project()
    document = json.loads(run.ok("trials", "--param", "lr=0.1,0.2,0.3", "--keep", "all", "--json"))
    assert [trial["state"] for trial in document["trials"]] == ["SUCCEEDED"] * 3
    models = run.run_folder.glob("outputs/trials/*/model.txt")
    assert len([*models]) == 3


def test_what_is_ended_after_a_trial_is_named(project):
    run = project()
    (run.folder / "run.sh").write_text("setsid perl -e 'sleep 600' &\n")
    document = json.loads(run.ok("trials", "--param", "lr=0.1", "--json"))
    (trial,) = document["trials"]
    assert trial["state"] == "SUCCEEDED"
    assert trial["reason"].startswith("ended perl -e sleep 600 (pid ")
