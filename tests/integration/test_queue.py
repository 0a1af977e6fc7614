"""The queue of the hosts: runs that wait for ports that another run, or a program, has."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import free_ports
from support.small_disk import fill, small_disk
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


def projects(site: Any, count: int, *flags: str) -> list[Project]:
    """Return projects that need the same ports, pushed."""
    made = [site.project(*flags) for _ in range(count)]
    share_ports(*made)
    for project in made:
        project.ok("push")
    return made


def test_queued_runs_start_in_their_order_without_their_controllers(local):
    holder, second, third = projects(local, 3, "--hold")
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


def test_a_high_priority_comes_first_also_when_it_arrives_later(local):
    holder, second, third = projects(local, 3, "--hold")
    holder.ok("start")
    second.ok("start", "--queue")
    third.ok("run", "--queue", "--priority", "high", "--json")
    assert [run["run"] for run in waiting(holder)] == [third.runs[-1], second.runs[-1]]
    second.ok("queue", second.runs[-1], "--priority", "high")
    until(
        lambda: [run["run"] for run in waiting(holder)] == [second.runs[-1], third.runs[-1]],
        "all tasks of the second run have moved",
    )
    holder.ok("stop")
    until(lambda: states(second) == {"READY"}, "the second run is READY")
    refused = second.tf("queue", second.runs[-1], "--priority", "normal")
    assert "does not wait in the queue: worker:0 is READY" in refused.stderr
    assert states(third) == {"QUEUED"}
    assert "all processes of run" in third.ok("stop")
    assert states(third) == {"STOPPED"}
    second.ok("stop")


def test_commands_that_wait_are_killed_and_their_runs_start_in_order(local):
    holder, *others = projects(local, 4, "--hold")
    holder.ok("start")
    for project in others:
        with project.start_command("run", "--wait", "1h") as command:
            command.wait_for_output("waiting: here: ")
            assert command.output.count("waiting: ") == 1
            os.kill(command.process.pid, signal.SIGKILL)
            command.process.wait()
        until_next_second()
    for before, after in itertools.pairwise([holder, *others]):
        assert states(after) == {"QUEUED"}
        before.ok("stop")
        until(lambda project=after: states(project) == {"READY"}, "the next run is READY")
    others[-1].ok("stop")


def test_a_run_waits_in_the_foreground_and_is_followed_to_its_end(local):
    holder, second, _ = projects(local, 3)
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


def restart_host(project: Project) -> None:
    """End all processes of the project, as the next boot of its host does."""
    project.end()
    for state in project.on("here").glob("runs/*/*/state.json"):
        state.write_text(json.dumps({**json.loads(state.read_text()), "boot": "an earlier one"}))


def test_a_run_whose_host_restarts_leaves_the_queue_and_is_submitted_again(local):
    holder, second, third = projects(local, 3, "--hold")
    holder.ok("start")
    second.ok("start", "--queue")
    third.ok("start", "--queue")
    restart_host(second)
    [run] = second.runs
    table = second.ok("status")
    assert f"restarted, so the run has left the queue; tfdeploy resume {run} --queue" in table
    assert [each["run"] for each in waiting(holder)] == third.runs
    out = second.ok("resume", run, "--queue", "--priority", "high")
    assert f"run {run} is in the queue of here" in out
    assert [each["run"] for each in waiting(holder)] == [run, *third.runs]
    holder.ok("stop")
    until(lambda: states(second) == {"READY"}, "the run that was submitted again is READY")
    assert states(third) == {"QUEUED"}
    third.ok("stop")
    second.ok("stop")


def test_a_run_whose_disk_is_full_gets_its_turn_and_delays_no_other(local, tmp_path):
    with small_disk(tmp_path / "disk", 16_384) as disk:
        holder, second, third = projects(local, 3, "--hold")
        holder.ok("start")
        second.hosts["here"]["directory"] = str(disk)
        second.write()
        second.ok("start", "--push", "--queue")
        fill(disk / "filler")
        third.ok("start", "--queue")
        assert states(second) == states(third) == {"QUEUED"}
        holder.ok("stop")
        until(lambda: "QUEUED" not in states(second), "the second run has started")
        second.ok("stop")  # it may have ended: it can't write
        until(lambda: states(third) == {"READY"}, "the third run is READY")
        third.ok("stop")


def test_a_missing_program_is_not_waited_for(local):
    project = local.project(training={"command": ["/no/program"]})
    project.ok("push")
    refused = project.tf("start", "--queue")
    assert refused.returncode == 1
    assert "the program /no/program of ps:0 is not on this host" in refused.stderr


def test_a_start_does_not_overtake_a_run_that_waits(local):
    holder, second, third = projects(local, 3, "--hold")
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
    holder, second, _ = projects(local, 3, "--hold")
    second.ok("start")
    second.ok("stop")
    holder.ok("start")
    with second.start_command("resume", "--wait", "1h") as command:
        command.wait_for_output("waiting: here: port ")
        holder.ok("stop")
        assert command.process.wait() == 0, command.output
    assert states(second) == {"READY"}
    second.ok("stop")


@pytest.mark.parametrize("words", [("--queue", "--wait", "1h"), ("--priority", "high")])
def test_options_of_the_queue_that_contradict_are_refused(local, words):
    assert local.project().tf("start", *words).returncode == 2
