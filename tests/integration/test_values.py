"""A value with everything in it arrives as it was: paths, arguments, environment, over both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Project

ODD = """it's; "so" $(touch pwned) `touch pwned` $HOME \\ \\x41 %h & | * ünï 😀"""
TASKS = ["ps:0", "worker:0", "worker:1"]


@pytest.fixture(scope="module")
def odd(lasting) -> Project:
    """A run whose project folder, files, hosts' directories, arguments and environment are odd."""
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
    return project


def told(project: Project, task: str) -> dict:
    return json.loads((project.work(task) / "told.json").read_text())


@pytest.mark.parametrize("task", TASKS)
def test_an_argument_arrives_as_it_was(odd, task):
    assert told(odd, task)["argv"][:2] == [ODD, f"--checkpoint_dir={ODD}"]


@pytest.mark.parametrize("task", TASKS)
def test_an_environment_variable_arrives_as_it_was(odd, task):
    env = told(odd, task)["env"]
    host = list(odd.hosts)[0 if task == "ps:0" else -1]
    assert (env["ODD"], env["LINES"], env["OWN"]) == (ODD, "a\nb\t", f"{host} {ODD}")


def test_a_file_and_its_name_arrive_as_they_were(odd):
    assert (odd.work("worker:0") / "data" / ODD).read_text() == ODD


def test_the_run_is_known_again_by_its_record_at_home(odd):
    assert [task["state"] for task in odd.status().values()] == ["READY"] * 3


def test_checkpoints_come_home_from_an_odd_folder_to_an_odd_folder(odd):
    odd.ok("collect")
    assert (odd.home / "checkpoints/model.ckpt-3.index").is_file()
    assert (odd.home / "events/events.out.tfevents.1.host").is_file()


def test_nothing_in_a_value_was_executed(odd, base: Path):
    odd.ok("logs")
    assert list(base.rglob("pwned")) == []
