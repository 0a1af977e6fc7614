"""Other numbers of tasks: when a run starts, when it is resumed, and while it is live."""

from __future__ import annotations

import json
import re

import pytest
from support.ports import free_ports
from support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def project(world):
    """Return a pushed project whose hosts have ports for more tasks than hosts.toml starts."""
    hosts = world.hosts()
    for host in hosts.values():
        host["ports"] = free_ports(6)
    return world.pushed("--steps=3", "--hold", hosts=hosts)


def states(project):
    return {name: task["state"] for name, task in project.status().items()}


def wait_for_checkpoint(project, step):
    saved = project.work("worker:0") / "checkpoints" / f"model.ckpt-{step}.index"
    until(saved.is_file, f"checkpoint {step}")


def test_a_run_starts_with_other_numbers_of_tasks(project):
    project.ok("start", "--with", "workers=1")
    assert states(project) == {"ps:0": "READY", "worker:0": "READY"}


def test_a_live_run_gets_more_workers_and_then_fewer(project):
    project.ok("start", "--name", "wide", "--", "--steps=4")
    wait_for_checkpoint(project, 4)
    before, secret = project.runs, project.supervisor("worker:0")
    scaled = project.ok("scale", "workers=3")
    assert "scaled from 1 ps and 2 workers to 1 ps and 3 workers: stopped in " in scaled
    assert re.search(r"run \S+ resumes from model.ckpt-4 on ", scaled)
    assert re.search(r"model.ckpt-4 was \d+s old: what was trained after it", scaled)
    assert states(project) == dict.fromkeys(["ps:0", "worker:0", "worker:1", "worker:2"], "READY")
    assert project.runs == before
    assert project.supervisor("worker:0") != secret
    (project.work("worker:2") / "result.csv").write_text("0.9\n")
    project.ok("scale", "workers=1", "--run", "wide")
    assert states(project) == {"ps:0": "READY", "worker:0": "READY"}
    assert (project.run_folder / "outputs/worker-2/result.csv").read_text() == "0.9\n"
    (run,) = json.loads(project.ok("runs", "--json"))["runs"][:1]
    assert (run["name"], run["words"]) == ("wide", ["--steps=4"])


def test_what_cannot_be_placed_leaves_the_run_as_it_is(project):
    project.ok("start")
    for words, message in [
        (("workers=99",), "suffice for only"),
        (("worker=3",), 'scale: found "worker=3"; expected ps=COUNT or workers=COUNT'),
        (("workers=3", "--on", "nowhere"), 'there is no host "nowhere"'),
    ]:
        done = project.tf("scale", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert set(states(project).values()) == {"READY"}


def test_a_run_that_has_ended_is_resumed_and_not_scaled(project):
    project.ok("start")
    wait_for_checkpoint(project, 3)
    project.ok("stop")
    refused = project.tf("scale", "workers=1")
    assert refused.returncode == 2
    assert "has ended: there is nothing to scale" in refused.stderr
    project.ok("resume", "--with", "workers=1")
    assert states(project) == {"ps:0": "READY", "worker:0": "READY"}


def test_a_host_that_hosts_toml_gained_can_be_used(by_ssh):
    hosts = by_ssh.hosts()
    late = {**hosts.pop("two"), "ports": free_ports(3)}
    hosts["one"] |= {"ports": free_ports(6), "workers": 1}
    project = by_ssh.project("--steps=3", "--hold", hosts=hosts)
    project.ok("push")
    project.ok("start")
    project.hosts["two"] = late | {"workers": 0}
    project.write()
    project.ok("scale", "workers=2", "--on", "two")
    tasks = project.status()
    assert {name: task["host"] for name, task in tasks.items()} == {
        "ps:0": "one", "worker:0": "one", "worker:1": "two"
    }  # fmt: skip


def test_an_older_release_starts_again(project):
    project.ok("start", "--name", "good")
    first = json.loads(project.ok("runs", "--json"))["runs"][0]["release"]
    project.ok("stop")
    (project.folder / "train.py").write_text("raise SystemExit('broken')\n")
    project.ok("push")
    assert project.tf("start").returncode == 1
    project.ok("start", "--release", first)
    assert json.loads((project.run_folder / "run.json").read_text())["release"] == first
    project.ok("stop")
    project.ok("start", "--release", "good")
    assert json.loads((project.run_folder / "run.json").read_text())["release"] == first
    refused = project.tf("start", "--release", "0123456789ab")
    assert refused.returncode == 2
    assert "release 0123456789ab is not on " in refused.stderr


def test_start_pushes_if_it_is_asked_to(project):
    (project.folder / "train.py").write_text("raise SystemExit('broken')\n")
    done = project.tf("start", "--push")
    assert done.returncode == 1
    assert "broken" in done.stderr
