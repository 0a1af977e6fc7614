"""`attach` follows a run that another command started, to its end."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow


def test_attach_follows_a_run_stops_and_collects_it_with_the_chiefs_exit_code(world):
    project = world.started("--steps=3", "--gate", "--exit=3", "--who=worker:0")
    with project.start_command("attach") as first:
        first.wait_for_output("worker:0 step 3")
        assert first.interrupt() == 130
        assert f"tfdeploy attach --run {project.runs[-1]}" in first.output
    assert {task["state"] for task in project.status().values()} == {"READY"}
    with project.start_command("attach", project.runs[-1]) as second:
        second.wait_for_output("worker:0 step 3")
        for task in ("worker:0", "worker:1"):
            (project.work(task) / "go").touch()
        assert second.process.wait() == 3, second.output
    assert "checkpoints/model.ckpt-3\n" in second.output
    assert project.processes() == {}


def test_attach_to_a_run_that_has_ended_collects_it(world):
    project = world.started("--steps=3", "--hold")
    project.ok("stop")
    done = project.tf("attach", "--json")
    assert done.returncode == 143, done.stderr
    document = json.loads(done.stdout)
    assert (document["run"], document["result"]) == (project.runs[-1], "stopped")
