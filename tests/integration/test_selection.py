"""--task and --on: the same names for every command, and nothing else is asked, sent or fetched."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def held(lasting):
    """Return a project with ps:0 on its first host, worker:0 (the chief) and worker:1 on its last,
    which run until the end of the module's tests."""
    project = lasting.project("--hold")
    project.ok("push")
    project.ok("start")
    return project


def statuses(project, *words):
    return [task["task"] for task in json.loads(project.ok("status", "--json", *words))["tasks"]]


def test_status_shows_the_selected_tasks(held):
    last = list(held.hosts)[-1]
    assert statuses(held, "--task", "worker") == ["worker:0", "worker:1"]
    assert statuses(held, "--task", "worker:1,ps:0") == ["ps:0", "worker:1"]
    assert statuses(held, "--on", last, "--task", "worker:[0-1]") == ["worker:0", "worker:1"]
    refused = held.tf("status", "--task", "ps", "--exit-code")
    assert (refused.returncode, "is about the whole run" in refused.stderr) == (2, True)


def test_logs_show_the_selected_tasks(held):
    on_all = f"--on={','.join(held.hosts)}"
    for words in (["worker:1"], ["--task", "worker:1"], ["worker:1", on_all]):
        prefixes = {line.partition("@")[0] for line in held.ok("logs", *words).splitlines()}
        assert prefixes == {"worker:1"}, words


def test_collect_fetches_the_selected_tasks_alone(held):
    printed = held.ok("collect", "--task", "ps:0")
    assert "checkpoint" not in printed
    assert [log.name for log in (held.run_folder / "logs").glob("*.log")] == ["ps-0.log"]
    held.ok("collect", "--task", "worker")
    logs = {log.name for log in (held.run_folder / "logs").glob("*.log")}
    assert logs == {"ps-0.log", "worker-0.log", "worker-1.log"}


def test_fetch_fetches_from_each_task_and_names_those_without_the_file(held):
    for task in ("worker:0", "worker:1"):
        (held.work(task) / "each.txt").write_text(task)
    (held.work("worker:1") / "own.txt").write_text("of worker:1")
    held.ok("fetch", "worker", "each.txt")
    for task in ("worker:0", "worker:1"):
        fetched = held.run_folder / "fetched" / task.replace(":", "-") / "each.txt"
        assert fetched.read_text() == task
    done = held.tf("fetch", "worker:[0-1]", "own.txt", "--json")
    assert done.returncode == 1
    assert "worker:0 on" in done.stderr
    assert "has no file own.txt" in done.stderr
    document = json.loads(done.stdout)
    assert [file["path"] for file in document["files"]] == ["own.txt"]
    assert len(document["errors"]) == 1
    assert (held.run_folder / "fetched" / "worker-1" / "own.txt").read_text() == "of worker:1"


@pytest.mark.parametrize("command", ["status", "logs", "collect", "exec"])
def test_unknown_names_are_one_sentence(held, command):
    words = ["--", "ls"] if command == "exec" else []
    done = held.tf(command, "--on", "gone", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f'error: there is no host "gone"\n  the hosts are {", ".join(held.hosts)}\n'
    )
    done = held.tf(command, "--task", "worker:9", *words)
    assert done.stderr.startswith("error: there is no task worker:9 in this run\n")


def test_push_sends_to_the_selected_hosts_and_check_asks_them(by_ssh):
    project = by_ssh.project()
    assert project.ok("push", "--on", "two").endswith(" to two\n")
    assert (project.releases("two") != set(), project.on("one").exists()) == (True, False)
    checked = json.loads(project.tf("check", "--on", "two", "--json").stdout)
    assert list(checked["hosts"]) == ["two"]
    assert not project.on("one").exists()
    done = project.tf("push", "--on", "gpu-[1-2]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'error: there is no host "gpu-1"\n  the hosts are one, two\n'


def test_quiet_prints_results_alone(local):
    project = local.project("--steps", "2")
    assert project.ok("push", "--quiet") == ""
    printed = project.ok("run", "-q")
    assert " | " not in printed
    assert "READY     " not in printed
    assert printed.endswith(f"run {project.runs[-1]} succeeded\n")
    loud = project.ok("run")
    assert " | " in loud


def test_the_environment_names_the_hosts_file(local, monkeypatch):
    project = local.project()
    (project.folder / "hosts.toml").rename(project.folder / "lab.toml")
    monkeypatch.setenv("TFDEPLOY_HOSTS", "lab.toml")
    assert "worker:1" in project.ok("plan")
    assert project.tf("plan", "--hosts", "hosts.toml").returncode == 2
