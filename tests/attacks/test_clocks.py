"""Clocks that are years off, or set by years during a run, on the controller and on hosts."""

from __future__ import annotations

import re

import pytest
from support.projects import Project, local_hosts

pytestmark = pytest.mark.slow

FORWARD_S, BACK_S = 20 * 365 * 86400, -20 * 365 * 86400
# The agent, with another time of day; the kernel counts the seconds since its boot as before.
AGENT = """
import runpy, sys, time
kernel = time.time
def set_clock():
    with open({clock!r}) as file:
        return kernel() + float(file.read())
time.time = set_clock
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PYTHON = """#!/bin/sh
case $3 in /*) shift 2; exec {python} -S -E {agent} "$@" ;; esac
exec {python} "$@"
"""


@pytest.fixture
def clock(tmp_path):
    """A file with the seconds by which the host's clock is ahead."""
    file = tmp_path / "clock"
    file.write_text("0")
    return file


@pytest.fixture
def project(tmp_path, clock):
    """A project whose host, this machine, has a clock of its own."""
    hosts = local_hosts(tmp_path / "hosts")
    agent, python = tmp_path / "agent.py", tmp_path / "python-of-host"
    agent.write_text(AGENT.format(clock=str(clock)))
    python.write_text(PYTHON.format(python=hosts["here"]["python"], agent=agent))
    python.chmod(0o755)
    hosts["here"]["python"] = str(python)
    created = Project(tmp_path / "project", hosts, flags=["--gate"])
    yield created
    created.end()


def test_a_host_whose_clock_is_set_by_years_keeps_and_ends_runs_as_usual(project, clock):
    project.training = {"max_duration_s": 3600}
    project.write()
    project.ok("push")
    for offset in (FORWARD_S, BACK_S):
        project.ok("start")
        pids = {name: task["pid"] for name, task in project.status().items()}
        clock.write_text(str(offset))
        status = project.status()
        assert {name: task["pid"] for name, task in status.items()} == pids
        assert {task["state"] for task in status.values()} == {"READY"}
        assert re.search(r"ends at the latest in 5\dm", project.ok("status"))
        project.ok("stop")
        project.ok("collect")
        project.ok("report")
    project.ok("resume")  # 40 years before its start on the host
    assert {task["state"] for task in project.status().values()} == {"READY"}
    clock.write_text(str(FORWARD_S))
    project.ok("prune", "--keep", "1", "--yes")
    assert [path.name for path in project.on("here").glob("runs/*")] == project.runs[1:]
    for task in ("worker:0", "worker:1"):
        (project.work(task) / "go").touch()
    assert project.tf("attach", "--quiet").returncode == 0
