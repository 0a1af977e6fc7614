"""The queue of the hosts: runs that wait for ports that another run, or a program, has."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.waiting import until

if TYPE_CHECKING:
    from support.projects import Project


def share_ports(first: Project, *others: Project) -> None:
    """Give the hosts of other projects the same ports for tasks, and some of their own to wait."""
    for host, table in first.hosts.items():
        first.hosts[host] = {**table, "ports": [*table["ports"], *free_ports(2)]}
    first.write()
    for project in others:
        for host, table in first.hosts.items():
            own = [*table["ports"][:-2], *free_ports(2)]
            project.hosts[host] = {**project.hosts[host], "ports": own}
        project.write()


def waiting(project: Project) -> list[dict[str, Any]]:
    """Return the runs of this test that wait on the project's hosts, first come first."""
    found: list[dict[str, Any]] = json.loads(project.ok("queue", "--json"))["waiting"]
    return [run for run in found if run["project"].startswith(f"p{os.getpid()}-")]


def states(project: Project) -> set[str]:
    tasks = json.loads(project.tf("status", "--json").stdout)["tasks"]
    return {task["state"] for task in tasks}


def until_next_second() -> None:
    """Wait: the order of runs that are submitted in the same second is that of their ids."""
    now = int(time.time())
    until(lambda: int(time.time()) > now, "the next second")


def three(site: Any, *flags: str) -> list[Project]:
    projects = [site.project(*flags) for _ in range(3)]
    share_ports(*projects)
    for project in projects:
        project.ok("push")
    return projects


def test_queued_runs_start_in_their_order_without_their_controllers(local):
    holder, second, third = three(local, "--hold")
    holder.ok("start")
    for project in (second, third):
        out = project.ok("start", "--queue")
        assert f"run {project.runs[-1]} is in the queue of here, and starts when" in out
        assert states(project) == {"QUEUED"}
        until_next_second()
    found = waiting(third)
    assert [run["run"] for run in found] == [second.runs[-1], third.runs[-1]]
    user = found[0]["user"]
    assert f" is taken by {user}'s run {holder.runs[-1]}, started " in found[0]["hosts"]["here"]
    assert found[1]["hosts"]["here"].endswith(f", behind {user}'s run {second.runs[-1]}")
    assert "second for port " in third.tf("status").stdout
    holder.ok("stop")
    until(lambda: states(second) == {"READY"}, "the second run is READY")
    assert states(third) == {"QUEUED"}
    second.ok("stop")
    until(lambda: states(third) == {"READY"}, "the third run is READY")
    third.ok("stop")
    assert waiting(holder) == []


def test_a_higher_priority_comes_first_also_when_it_arrives_later(local):
    holder, second, third = three(local, "--hold")
    holder.ok("start")
    second.ok("start", "--queue")
    third.ok("run", "--queue", "--priority", "5", "--json")
    assert [run["run"] for run in waiting(holder)] == [third.runs[-1], second.runs[-1]]
    second.ok("queue", second.runs[-1], "--priority", "7")
    until(
        lambda: [run["priority"] for run in waiting(holder)] == [7, 5],
        "all tasks of the second run have moved",
    )
    holder.ok("stop")
    until(lambda: states(second) == {"READY"}, "the second run is READY")
    refused = second.tf("queue", second.runs[-1], "--priority", "1")
    assert "does not wait in the queue: worker:0 is READY" in refused.stderr
    assert states(third) == {"QUEUED"}
    assert "all processes of run" in third.ok("stop")
    assert states(third) == {"STOPPED"}
    second.ok("stop")


def test_a_command_that_waits_is_killed_and_its_run_starts_all_the_same(local):
    holder, second, _ = three(local, "--hold")
    holder.ok("start")
    with second.start_command("run", "--wait", "1h") as command:
        command.wait_for_output("waiting: here: port ")
        assert command.output.count("waiting: ") == 1
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
    holder.ok("stop")
    until(lambda: states(second) == {"READY"}, "the second run is READY")
    second.ok("stop")


def test_a_run_waits_in_the_foreground_and_is_followed_to_its_end(local):
    holder, second, _ = three(local)
    holder.flags = ["--hold"]
    holder.write()
    holder.ok("push")
    holder.ok("start")
    with second.start_command("run", "--wait", "forever", "-q") as command:
        until(lambda: waiting(holder), "the second run waits")
        holder.ok("stop")
        assert command.process.wait() == 0
        assert "QUEUED" not in command.output


def test_the_end_of_a_wait_says_what_it_waited_for_and_leaves_nothing(local):
    project = local.pushed()
    with socket.create_server(("", project.hosts["here"]["ports"][0])) as listener:
        refused = project.tf("start", "--wait", "0.1s")
        port = listener.getsockname()[1]
    assert refused.returncode == 1
    assert f"here: port {port} for ps:0 is taken by pid " in refused.stderr
    assert "waited 0s" in refused.stderr
    assert project.processes() == {}
    assert states(project) == {"STOPPED"}


def test_ctrl_c_ends_a_wait_and_the_run(local):
    project = local.pushed()
    with (
        socket.create_server(("", project.hosts["here"]["ports"][0])),
        project.start_command("start", "--wait", "1h") as command,
    ):
        command.wait_for_output("waiting: ")
        assert command.interrupt() == 130
    assert project.processes() == {}


def test_a_missing_program_is_not_waited_for(local):
    project = local.project(training={"command": ["/no/program"]})
    project.ok("push")
    refused = project.tf("start", "--queue")
    assert refused.returncode == 1
    assert "the program /no/program of ps:0 is not on this host" in refused.stderr


def test_a_start_does_not_overtake_a_run_that_waits(local):
    holder, second, third = three(local, "--hold")
    holder.ok("start")
    second.ok("start", "--queue")
    port = holder.hosts["here"]["ports"][0]
    third.hosts["here"]["ports"][:3] = [*free_ports(2), port]
    third.write()
    holder.ok("stop")
    refused = third.tf("start")
    assert refused.returncode == 1
    assert f" of run {second.runs[-1]} of {second.name}" in refused.stderr
    second.ok("stop")


def test_a_resume_waits_for_its_turn(local):
    holder, second, _ = three(local, "--hold")
    second.ok("start")
    second.ok("stop")
    holder.ok("start")
    with second.start_command("resume", "--wait", "1h") as command:
        command.wait_for_output("waiting: here: port ")
        holder.ok("stop")
        assert command.process.wait() == 0, command.output
    assert states(second) == {"READY"}
    second.ok("stop")


@pytest.mark.parametrize("words", [("--queue", "--wait", "1h"), ("--priority", "3")])
def test_options_of_the_queue_that_contradict_are_refused(local, words):
    assert local.project().tf("start", *words).returncode == 2
