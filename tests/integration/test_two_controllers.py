"""Two controllers act on one run: each takes the newer record that the hosts have, and says so."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
from contextlib import contextmanager

import pytest
from support.projects import Project
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.commands.changing import changing

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


@pytest.fixture
def pair(world, tmp_path):
    """A controller that has started a run, and another one with a copy of its folder."""
    first = world.started("--hold")
    copy = tmp_path / "copy"
    shutil.copytree(first.folder, copy)
    return first, Project(copy, first.hosts, first.top, flags=first.flags, name=first.name)


BUSY = "is being resumed or scaled by "
TO = (["scale", "workers=1"], ["resume", "--with", "workers=1"])


@LOCAL_ONLY
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_to", "second_to"), [TO, TO[::-1]], ids=["scale-resume", "resume-scale"]
)
def test_of_two_changes_at_once_one_wins_and_the_other_is_told_by_whom(pair, first_to, second_to):
    first, second = pair
    with first.start_command(*first_to) as one, second.start_command(*second_to) as other:
        codes = one.process.wait(), other.process.wait()
    outputs = (one.output, other.output)
    assert 0 in codes, outputs
    later = (BUSY, "there is nothing to scale", "nothing to resume")  # the last two: after it
    for code, text in zip(codes, outputs, strict=True):
        assert "the agent failed" not in text
        assert "has ended" not in text
        assert not code or any(words in text for words in later), text
    assert {task: each["state"] for task, each in first.status().items()} == {
        "ps:0": "READY", "worker:0": "READY"
    }  # fmt: skip
    assert pids(first) == pids(second)
    first.ok("stop")


@LOCAL_ONLY
@pytest.mark.slow
def test_a_change_names_who_else_changes_the_run_and_where_and_when(pair):
    first, second = pair
    with runs_changing(first):
        for words in (["scale", "workers=1"], ["resume", "--with", "workers=1"]):
            done = second.tf(*words)
            assert done.returncode != 0
            who = f"{getpass.getuser()}@{socket.gethostname()} in {first.folder} since "
            assert f"run {first.runs[-1]} {BUSY}{who}" in done.stderr
            assert f"tfdeploy status --run {first.runs[-1]}" in done.stderr
        assert set(pids(first)) == {"ps:0", "worker:0", "worker:1"}  # nothing was stopped
    second.ok("scale", "workers=1")
    first.ok("stop")


@LOCAL_ONLY
@pytest.mark.slow
def test_a_stop_waits_for_a_change_and_stops_what_it_has_started(pair):
    first, second = pair
    with first.start_command("scale", "workers=1") as scaling:
        until(lambda: "STARTING" in scaling.output or scaling.process.poll() is not None, "a start")
        second.tf("stop")
        scaling.process.wait()
    assert first.processes() == {}
    with runs_changing(first), second.start_command("stop") as stopping:
        stopping.wait_for_output("it is stopped after that")
        assert BUSY in stopping.output
    assert stopping.process.poll() is not None


@contextmanager
def runs_changing(project):
    """Hold the lock of a change, as a command in a project's folder does."""
    with changing(runs.load(project.folder / "hosts.toml")):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
def test_stop_ends_what_it_knows_if_the_hosts_disagree_about_a_newer_record(world):
    project = world.started("--hold")
    file = project.on("one") / "runs" / project.runs[-1] / "record.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "starts": record["starts"] + 1}))
    done = project.tf("stop")
    assert (done.returncode, project.processes()) == (1, {})
    assert f"one says that it has a newer record of run {project.runs[-1]}" in done.stderr
    assert "have exited" not in done.stdout
