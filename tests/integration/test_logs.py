"""`tfdeploy logs`, over real SSH: no line is lost, and hosts select those that are wanted."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.waiting import until

from .conftest import World

if TYPE_CHECKING:
    from support.projects import Project

FLOOD = Path(__file__).parents[1] / "support" / "stub" / "flood.py"
WORKERS = 16
LINES, RATE = 6000, 3000  # of each worker: 48,000 lines a second


def flooded(world, workers, lines, rate) -> Project:
    """Start workers on two hosts, each of which writes `lines` lines."""
    hosts = world.hosts()
    for name, host in hosts.items():
        half = workers // 2
        hosts[name] = {**host, "ps": 0, "workers": half, "ports": "auto"}
    project = world.project(
        hosts=hosts,
        training={
            "command": ["python", "flood.py", str(lines), str(rate)],
            "ready": "process",
            "role_args": [],
        },
    )
    shutil.copy(FLOOD, project.folder)
    project.ok("push")
    project.ok("start")
    return project


def touch(project, name):
    """Create a file in the directory of every task."""
    for host in project.hosts:
        for work in project.on(host).glob("runs/*/worker-*/work"):
            (work / name).touch()


def by_task(output):
    """Return the lines of each task, in the order in which they were printed."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, _, text = line.partition(" | ")
        found.setdefault(name.partition("@")[0], []).append(text)
    return found


def numbered(lines):
    return [int(line.split()[1]) for line in lines if line.startswith("line ")]


@pytest.mark.slow
def test_no_line_of_a_flood_is_lost_or_reordered(by_ssh):
    project = flooded(by_ssh, WORKERS, LINES, RATE)
    with project.start_command("logs", "-f") as following:
        until(lambda: following.output.count("| waits") == WORKERS, "the first lines")
        touch(project, "begin")
        until(lambda: following.output.count("| early: ") == WORKERS, "the last lines")
        assert following.interrupt() == 130
        found = by_task(following.output.partition("\nstopped following")[0])
    workers = [f"worker:{number}" for number in range(WORKERS)]
    assert {task: numbered(found[task]) for task in workers} == {
        task: list(range(LINES)) for task in workers
    }


@pytest.fixture(scope="module")
def project(base, ssh_config):
    """Four workers that have written 200 lines, and later a few more."""
    world = World("ssh", base, ssh_config)
    project = flooded(world, 4, 200, 10_000)
    touch(project, "begin")
    until(lambda: project.ok("logs").count("early: ") == 4, "the early lines")
    time.sleep(2.5)  # times of lines are known to a second
    touch(project, "go")
    until(lambda: project.ok("logs").count("aaaa!") == 4, "the late lines")
    yield project
    world.end()


def test_the_last_lines_are_printed(project):
    found = by_task(project.ok("logs", "--tail", "5", "--task", "worker:[0-1]"))
    assert {*found} == {"worker:0", "worker:1"}
    assert all(lines[0].startswith("early: ") and len(lines) == 5 for lines in found.values())


def test_hosts_select_the_lines_that_match(project):
    found = by_task(project.ok("logs", "--grep", r"^line 0001\d7 |late", "worker"))
    assert len(found) == 4
    for lines in found.values():
        assert numbered(lines) == list(range(107, 200, 10))
        assert lines[-1] == "late: the file exists"
    assert numbered(by_task(project.ok("logs", "--grep", "^line", "-n", "2"))["worker:3"]) == [
        198,
        199,
    ]
    assert project.ok("logs", "--grep", "no such line") == ""


def test_everything_can_be_combined(project):
    words = ("logs", "-f", "--json", "--grep", "late|waits", "--tail", "1")
    with project.start_command(*words, "--task", "worker:2") as following:
        following.wait_for_output("late: the file exists")
        assert following.interrupt() == 130
        [line] = [json.loads(x) for x in following.output.splitlines() if x.startswith("{")]
    assert (line["task"], line["line"]) == ("worker:2", "late: the file exists")


def test_a_pattern_without_end_is_refused_and_harms_no_host(project):
    done = project.tf("logs", "--grep", "(a+)+$", "worker:0")
    assert done.returncode == 1
    assert "the pattern takes more than 2 s" in done.stderr
    assert project.ok("logs", "-n", "1", "worker:0")


def test_a_wrong_pattern_is_one_sentence(project):
    done = project.tf("logs", "--grep", "(a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a regular expression: missing )" in done.stderr
    assert "Traceback" not in done.stderr
