"""Values with any characters arrive unchanged: paths, arguments and environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.waiting import until

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from support.projects import Project

ODD = """it's; "so" $(touch pwned) `touch pwned` $HOME \\ \\x41 %h & | * ünï 😀"""
TASKS = ["ps:0", "worker:0", "worker:1"]


@pytest.fixture(scope="module")
def odd(lasting) -> Project:
    """Start a run with odd characters in its folders, files, arguments and environment."""
    hosts = lasting.hosts()
    for name, host in hosts.items():
        host["directory"] = str(lasting.base / "hosts" / ODD / name)
        host["env"] = {"OWN": f"{name} {ODD}"}
    training = {"env": {"ODD": ODD, "LINES": "a\nb\t"}, "checkpoint_dir": ODD}
    flags = [ODD, f"--checkpoint_dir={ODD}", "--dump", "--hold"]
    project = lasting.project(*flags, hosts=hosts, training=training, folder=ODD)
    (project.folder / "data").mkdir()
    (project.folder / "data" / ODD).write_text(ODD)
    project.ok("push")
    project.ok("start")
    state_file = project.work("worker:0") / ODD / "checkpoint"
    until(lambda: state_file.is_file() and "ckpt-3" in state_file.read_text(), "checkpoint 3")
    return project


def dumped(project: Project, task: str) -> dict:
    return json.loads((project.work(task) / "dump.json").read_text())


@pytest.mark.parametrize("task", TASKS)
def test_an_argument_arrives_unchanged(odd, task):
    assert dumped(odd, task)["argv"][:2] == [ODD, f"--checkpoint_dir={ODD}"]


@pytest.mark.parametrize("task", TASKS)
def test_an_environment_variable_arrives_unchanged(odd, task):
    env = dumped(odd, task)["env"]
    host = list(odd.hosts)[0 if task == "ps:0" else -1]
    assert (env["ODD"], env["LINES"], env["OWN"]) == (ODD, "a\nb\t", f"{host} {ODD}")


def test_a_file_and_its_name_arrive_unchanged(odd):
    assert (odd.work("worker:0") / "data" / ODD).read_text() == ODD


def test_the_run_is_found_again_by_its_record_on_the_controller(odd):
    assert [task["state"] for task in odd.status().values()] == ["READY"] * 3


def test_checkpoints_are_collected_from_and_to_an_odd_folder(odd):
    odd.ok("collect")
    assert (odd.run_folder / "checkpoints/model.ckpt-3.index").is_file()
    assert (odd.run_folder / "events/events.out.tfevents.1.host").is_file()


def test_nothing_in_a_value_was_executed(odd, base: Path):
    odd.ok("logs")
    assert list(base.rglob("pwned")) == []


def test_words_and_variables_of_the_command_line_arrive_and_are_kept_by_resume(world):
    project = world.pushed("--dump", "--hold")
    project.ok("start", "--env", f"ODD={ODD}", "--env=PYTHONPATH=odd", "--", ODD, "a\nb")
    file = project.work("worker:0") / "dump.json"
    for again in (False, True):
        if again:
            project.ok("stop")
            file.unlink()
            project.ok("resume")
        until(lambda: file.exists() and file.read_text().endswith("}"), "arguments and environment")
        found = dumped(project, "worker:0")
        assert found["argv"][:4] == ["--dump", "--hold", ODD, "a\nb"]
        assert (found["env"]["ODD"], found["env"]["TFDEPLOY_RUN"]) == (ODD, project.runs[-1])
        assert found["env"]["PYTHONPATH"].endswith("odd")
