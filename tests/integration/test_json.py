"""What commands print with --json, on real hosts.

`Project.tf` compares everything with the schemas in docs/schemas/; these tests run every command.
tests/unit/branches/measuring/test_compare.py runs `compare`, and test_sweep.py runs `sweep`.
"""

from __future__ import annotations

import json

import pytest
from support.waiting import until


@pytest.fixture
def project(world):
    return world.pushed("--steps=3", "--hold")


def document(project, *words, exit_code=0):
    """Run a command with --json to the expected exit code; return what it printed."""
    done = project.tf(*words, "--json")
    assert done.returncode == exit_code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "lasting", ["ssh", pytest.param("local", marks=pytest.mark.slow)], indirect=True, scope="module"
)
def test_every_command_of_a_run_prints_its_document(project):
    planned, pushed = document(project, "plan"), document(project, "push")
    assert pushed["release"] == planned["release"]
    assert {tuple(host["present"]) for host in pushed["hosts"].values()} == {
        (planned["release"]["id"],)
    }
    started = document(project, "start", "--name=first")
    assert started["name"] == "first"
    assert [task["task"] for task in started["tasks"]] == ["ps:0", "worker:0", "worker:1"]
    until(lambda: "worker:0 step 3" in project.tf("logs", "-n1", "worker:0").stdout, "step 3")
    status = document(project, "status")
    assert (status["run"], status["release"]) == (started["run"], started["release"])
    fetched = document(project, "fetch", "worker:0", "checkpoints")
    assert "checkpoints/checkpoint" in [output["path"] for output in fetched["files"]]
    stopped = document(project, "stop")
    assert stopped["tasks"] == dict.fromkeys(("ps:0", "worker:0", "worker:1"), "STOPPED")
    assert stopped["saved"]["name"] == "model.ckpt-3"
    resumed = document(project, "resume")
    assert (resumed["run"], resumed["checkpoint"]["step"]) == (started["run"], 3)
    assert document(project, "collect")["checkpoints"][0]["name"] == "model.ckpt-3"
    scaled = document(project, "scale", "workers=1")
    assert [task["task"] for task in scaled["tasks"]] == ["ps:0", "worker:0"]
    document(project, "stop")
    assert document(project, "attach", exit_code=143)["result"] == "stopped"
    assert started["run"] in [run["id"] for run in document(project, "runs")["runs"]]
    document(project, "prune", "--keep=0", "--dry-run")


def test_push_says_which_hosts_lacked_the_release(world):
    project = world.project()
    pushed = document(project, "push")
    assert {tuple(host["sent"]) for host in pushed["hosts"].values()} == {
        (pushed["release"]["id"],)
    }


def test_logs_prints_an_object_for_each_line(project):
    document(project, "start")
    until(lambda: project.tf("logs", "-n1", "worker").stdout.count("step 3") == 2, "step 3")
    done = project.tf("logs", "--json", "-n1", "worker")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    host = list(project.hosts)[-1]
    assert sorted((each["task"], each["host"]) for each in found) == [
        ("worker:0", host), ("worker:1", host)
    ]  # fmt: skip
    assert all(each["line"].startswith(f"{each['task']} step 3") for each in found)


def test_logs_that_are_followed_are_printed_at_once(project):
    document(project, "start")
    with project.start_command("logs", "-f", "--json") as following:
        following.wait_for_output('"line": "worker:1 step 3"')
        assert following.interrupt() == 130


def test_a_command_that_fails_prints_an_error_document_in_its_own_format(project):
    missing = project.tf("logs", "--json", "worker:7", "--run", "20200101-000000-abcd")
    assert missing.returncode == 2
    [line] = missing.stdout.splitlines()
    assert json.loads(line)["error"]["message"] in missing.stderr
    refused = document(project, "stop", "--run", "20200101-000000-abcd", exit_code=2)
    assert refused["errors"][0]["message"].startswith('there is no run "20200101-000000-abcd"')


def test_a_word_for_the_program_asks_for_no_json(world):
    project = world.project()
    done = project.tf("start", "--", "--json")
    assert done.returncode != 0
    assert done.stdout == ""
