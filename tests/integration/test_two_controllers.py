"""Two controllers act on one run: each takes the newer record that the hosts have, and says so."""

from __future__ import annotations

import json
import shutil

import pytest
from support.projects import Project

LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)
TAKEN = "was resumed or scaled elsewhere: took its record from here"


@pytest.fixture
def controllers(world, tmp_path):
    """A controller that has started a run, and another one with a copy of its folder, which has
    resumed the run."""
    first = world.started("--hold")
    copy = tmp_path / "copy"
    shutil.copytree(first.folder, copy)
    second = Project(copy, first.hosts, first.top, flags=first.flags, name=first.name)
    second.ok("stop")
    second.ok("resume")
    return first, second


def pids(project):
    return {task: state["pid"] for task, state in project.status().items()}


@LOCAL_ONLY
@pytest.mark.slow
def test_stop_with_an_older_record_stops_the_launch_that_lives(controllers):
    first, second = controllers
    done = first.tf("stop")
    assert (done.returncode, first.processes()) == (0, {})
    assert TAKEN in done.stderr
    assert f"all processes of run {first.runs[-1]} have exited" in done.stdout
    assert {state["state"] for state in second.status().values()} == {"STOPPED"}


@LOCAL_ONLY
@pytest.mark.slow
def test_all_commands_take_the_newer_record(controllers):
    first, second = controllers
    record = first.run_folder / "run.json"
    old = record.read_text()
    assert json.loads(first.tf("status", "--json").stdout)["tasks"]
    assert pids(first) == pids(second)
    for words in (["exec", "worker:1", "--", "true"], ["fetch", "worker:0", "checkpoints"],
                  ["collect"], ["logs"], ["scale", "workers=1"]):  # fmt: skip
        record.write_text(old)
        done = first.tf(*words)
        assert (done.returncode, TAKEN in done.stderr) == (0, True), (words, done.stderr)
    second.ok("status")
    assert "worker:1" not in second.status()
    record.write_text(old)
    done = first.tf("scale", "workers=2")  # as many as the old record has
    assert (done.returncode, TAKEN in done.stderr) == (0, True), done.stderr
    second.ok("stop")
    for words in (["logs", "-f"], ["watch"], ["attach"]):
        record.write_text(old)
        done = first.tf(*words)
        assert TAKEN in done.stderr, (words, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
def test_stop_ends_what_it_knows_if_the_hosts_disagree_about_a_newer_record(world):
    project = world.started("--hold")
    file = project.on("one") / "runs" / project.runs[-1] / "record.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "starts": record["starts"] + 1}))
    done = project.tf("stop")
    assert (done.returncode, project.processes()) == (1, {})
    assert "one and two have different records of run" in done.stderr
    assert "have exited" not in done.stdout
