"""An sshd that restarts, and loses every connection, ends no run and hides none of its lines."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow

READY = dict.fromkeys(("ps:0", "worker:0", "worker:1"), ("READY", 0))


def restart(sshds):
    """Restart the sshd of the hosts of a project."""
    for name in ("one", "two"):
        sshds[name].stop()
    for name in ("one", "two"):
        sshds[name].start()


def states(project):
    return {task: (each["state"], each["restarts"]) for task, each in project.status().items()}


def test_a_start_during_which_sshd_restarts_starts_each_task_once(by_ssh, sshds):
    project = by_ssh.pushed("--deaf=worker:1", "--hold", training={"ready_timeout_s": 600})
    with project.start_command("start") as starting:
        starting.wait_for_output("READY     worker:0")
        restart(sshds)
        project.ok("stop")
        assert starting.process.wait() == 1
        assert "worker:1" in starting.output
    assert project.processes() == {}
    project = by_ssh.started("--hold")
    restart(sshds)
    assert states(project) == READY
    restart(sshds)
    assert "have exited" in project.ok("stop")
    assert project.processes() == {}


def test_a_run_that_is_followed_survives_restarts_of_sshd(by_ssh, sshds):
    project = by_ssh.pushed("--gate", "--steps=20")
    with project.start_command("run") as running:
        running.wait_for_output("worker:0 step 20")
        restart(sshds)
        assert states(project) == READY
        restart(sshds)
        for task in ("worker:0", "worker:1"):
            (project.work(task) / "go").touch()
        assert running.process.wait() == 0, running.output
        output = running.output
    lines = re.findall(r"^worker:0@two +\| worker:0 step (\d+)$", output, re.M)
    assert lines == [str(step) for step in range(1, 21)], "each line once"
    assert "ckpt-20" in output
    assert project.processes() == {}
