"""--wait: real leases and listeners that another run or another program has, and gives back."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.projects import Project


def same_ports(project: Project, other: Project) -> None:
    """Give the only host of a project the ports of the other project's."""
    project.hosts["here"] = {**project.hosts["here"], "ports": other.hosts["here"]["ports"]}
    project.write()


def test_a_start_waits_for_the_end_of_the_run_that_has_its_ports(local):
    first, second = local.project("--hold"), local.project("--hold")
    same_ports(second, first)
    for project in (first, second):
        project.ok("push")
    first.ok("start")
    holder = f" of run {first.runs[-1]} of {first.name}, started by "
    with second.start_command("start", "--wait", "1h") as command:
        command.wait_for_output("waiting: here: port ")
        assert command.process.poll() is None
        assert second.processes() == {}
        first.ok("stop")
        assert command.process.wait() == 0
        assert command.output.count("waiting: ") == 1
        assert holder in command.output
    assert len(second.runs) == 1  # the refused starts have left no record
    assert {task["state"] for task in second.status().values()} == {"READY"}
    second.ok("stop")


@pytest.mark.slow
def test_a_run_waits_for_another_program_on_a_port(local):
    project = local.pushed()
    port = project.hosts["here"]["ports"][0]
    with (
        socket.create_server(("", port)) as listener,
        project.start_command("run", "--wait", "forever") as command,
    ):
        command.wait_for_output(f"waiting: here: port {port} for ps:0 is taken by ")
        listener.close()
        command.process.wait()
        assert f"run {project.runs[-1]} succeeded" in command.output


def test_a_wait_ends_with_the_holder_and_takes_nothing(local):
    project = local.pushed()
    with socket.create_server(("", project.hosts["here"]["ports"][0])) as listener:
        refused = project.tf("start", "--wait", "0.1s")
        port = listener.getsockname()[1]
    assert refused.returncode == 1
    error, *_, last = refused.stderr.splitlines()
    assert error.startswith(f"error: here: port {port} for ps:0 is taken by ")
    assert last == "  waited 0s"
    assert project.processes() == {}
    assert not (project.folder / "runs").exists() or project.runs == []


def test_ctrl_c_ends_a_wait_with_nothing_started(local):
    project = local.pushed()
    with (
        socket.create_server(("", project.hosts["here"]["ports"][0])),
        project.start_command("start", "--wait", "1h") as command,
    ):
        command.wait_for_output("waiting: ")
        assert command.interrupt() == 130
        assert command.output.endswith("\ninterrupted while waiting: nothing was started\n")
    assert project.processes() == {}


def test_a_missing_program_is_not_waited_for(local):
    project = local.project(training={"command": ["/no/program"]})
    project.ok("push")
    refused = project.tf("start", "--wait", "forever")
    assert refused.returncode == 1
    assert "the program /no/program of ps:0 is not on this host" in refused.stderr
    assert "waiting" not in refused.stdout


def test_a_resume_waits_for_the_run_that_has_taken_its_ports(local):
    first, second = local.project("--hold"), local.project("--hold")
    same_ports(second, first)
    second.ok("push")
    second.ok("start")
    second.ok("stop")
    first.ok("push")
    first.ok("start")
    with second.start_command("resume", "--wait", "1h") as command:
        command.wait_for_output("waiting: here: port ")
        assert f" of run {first.runs[-1]} of {first.name}" in command.output
        first.ok("stop")
        assert command.process.wait() == 0
    assert len(second.runs) == 1
    assert {task["state"] for task in second.status().values()} == {"READY"}
    second.ok("stop")


def test_ctrl_c_ends_the_wait_of_a_resume(local):
    project = local.pushed("--hold")
    project.ok("start")
    project.ok("stop")
    with (
        socket.create_server(("", project.hosts["here"]["ports"][0])),
        project.start_command("resume", "--wait", "1h") as command,
    ):
        command.wait_for_output("waiting: ")
        assert command.interrupt() == 130
        assert command.output.endswith("\ninterrupted while waiting: nothing was started\n")
    assert project.processes() == {}
    project.ok("resume")
    project.ok("stop")
