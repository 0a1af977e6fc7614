"""Hosts whose clock jumps by a day, or whose disk is slow, in the middle of a run."""

from __future__ import annotations

import os

import pytest
from support.agent_python import SHIFT_CLOCK, SLOW_DISK, AgentPython
from support.projects import local_hosts
from support.waiting import until

pytestmark = pytest.mark.slow

DAY_S = 86_400
LIMITS = {"stall_timeout_s": 60, "frozen_timeout_s": 3}


@pytest.fixture
def odd(local, tmp_path):
    """Create a pushed project on a host whose agent and supervisors run `code` first."""

    def create(code):
        hosts = local_hosts(local.base / "hosts")
        python = AgentPython(tmp_path / "agent-python", hosts["here"]["python"], code)
        hosts["here"]["python"] = str(python.path)
        project = local.project("--gate", hosts=hosts, top={"restart": LIMITS})
        project.ok("push")
        return project, python

    return create


def restart_worker(project):
    """Kill worker:1 and wait until it runs again."""
    os.kill(project.status()["worker:1"]["pid"], 9)
    until(lambda: project.status()["worker:1"]["restarts"] == 1, "its restart")
    until(lambda: project.status()["worker:1"]["state"] == "READY", "worker:1 after its restart")


def states(project):
    return {task: (each["state"], each["restarts"]) for task, each in project.status().items()}


UNDISTURBED = dict.fromkeys(("ps:0", "worker:0", "worker:1"), ("READY", 0))


def test_a_host_whose_clock_jumps_loses_nothing(odd):
    project, clock = odd(SHIFT_CLOCK)
    project.ok("start")
    for ahead_s in (DAY_S, -DAY_S, 0, -DAY_S):
        clock.set(ahead_s)
        ages = [task["age_s"] for task in project.status().values()]
        assert all((age > DAY_S) == (ahead_s > 0) and age >= 0 for age in ages), ages
        assert states(project) == UNDISTURBED
    restart_worker(project)
    assert "ckpt-3" in project.ok("collect")
    project.ok("stop")
    assert project.processes() == {}
    assert {task["state"] for task in project.status().values()} == {"STOPPED"}
    assert project.run_folder.name in project.ok("runs")


def test_a_host_whose_disk_is_slow_is_no_failure(odd):
    project, disk = odd(SLOW_DISK)
    disk.set(0.02)
    project.ok("start")
    disk.set(1.5)  # it hangs for longer than a supervisor's tick
    assert states(project) == UNDISTURBED
    disk.set(0.02)
    restart_worker(project)
    assert "ckpt-3" in project.ok("collect")
    project.ok("stop")
    assert project.processes() == {}


def test_the_run_that_was_started_last_is_meant_although_the_clock_was_ahead(local):
    project = local.started("--hold")
    project.ok("stop")
    runs = project.folder / "runs"
    (runs / project.runs[-1]).rename(runs / "20991231-235959-ffff")
    project.ok("start")
    assert project.runs[-1] > "20991231-235959-ffff"
    assert {task["state"] for task in project.status().values()} == {"READY"}
    assert f"all processes of run {project.runs[-1]} have exited" in project.ok("stop")
    assert project.processes() == {}
    project.ok("prune", "--keep", "0", "--yes")  # else it stays the newest run for other tests
    project.ok("push")
