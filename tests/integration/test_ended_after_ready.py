"""A task that ends just after READY is named with its own end, never with a port or a firewall."""

from __future__ import annotations

import re

import pytest
from support.ports import ADDRESS, free_ports
from support.projects import without_tensorflow

pytestmark = pytest.mark.slow
BLAMES_NETWORK = re.compile(r"can't reach|open this port|firewall")
# worker:0 dies after it was READY: before worker:1 is READY, or just after that.
DIES = """
import os, signal, socket, sys, time
from pathlib import Path

hosts = next(word for word in sys.argv if word.startswith("--worker_hosts")).split("=")[1]
index = int(next(word for word in sys.argv if word.startswith("--task_index")).split("=")[1])
folder, moment, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def wait_for(path, text=""):
    while not path.exists() or text not in path.read_text():
        time.sleep(0.002)

def listen():
    address, port = hosts.split(",")[index].split(":")
    return socket.create_server((address, int(port)), backlog=64)

own, other = Path.cwd().parent / "state.json", folder / "other is ready"
if index == 0:
    server = listen()
    wait_for(own, '"READY"')
    wait_for(folder / "go" if moment == "before" else other)
    os.kill(os.getpid(), number)
if moment == "before":
    wait_for(folder / "gone")
server = listen()
wait_for(own, '"READY"')
other.touch()
time.sleep(3600)
"""


@pytest.fixture
def project(by_ssh, tmp_path):
    """Create a project with a worker on each of two hosts, the first of which dies by a signal."""

    def create(moment, number, **restart):
        common = {"address": ADDRESS, "python": without_tensorflow(tmp_path / "python")}
        hosts = {
            name: {"workers": 1, "ports": free_ports(2), "directory": str(tmp_path / name)} | common
            for name in ("one", "two")
        }
        command = ["python", "dies.py", str(tmp_path), moment, str(number)]
        training = {"command": command, "ready": "port"}
        created = by_ssh.project(hosts=hosts, top={"restart": restart}, training=training)
        (created.folder / "dies.py").write_text(DIES)
        return created

    return create


def test_a_restarted_task_is_not_judged_for_reachability(project, tmp_path):
    run = project("before", 11, delay_s=60.0)
    run.ok("push")
    with run.start_command("start") as starting:
        starting.wait_for_output("READY     worker:0")
        (tmp_path / "go").touch()
        starting.wait_for_output("BACKOFF   worker:0   one")
        (tmp_path / "gone").touch()
        assert starting.process.wait() == 0, starting.output
    assert not BLAMES_NETWORK.search(starting.output), starting.output
    assert "killed by SIGSEGV; restart 1 of 10" in starting.output
    last = starting.output.splitlines()[-1]
    assert last == f"run {run.runs[-1]} has started, 1 task is no longer READY: 2 tasks on 2 hosts"


@pytest.mark.parametrize("number", [6, 7, 11], ids=["SIGABRT", "SIGBUS", "SIGSEGV"])
def test_a_task_that_dies_while_the_hosts_are_asked_is_named_with_its_signal(project, number):
    run = project("together", number, attempts=0)
    done = run.tf("run")
    output = done.stdout + done.stderr
    assert done.returncode in (1, 128 + number), output  # in the start, or when it was followed
    assert not BLAMES_NETWORK.search(output), output
    names = {6: "SIGABRT", 7: "SIGBUS", 11: "SIGSEGV"}
    assert f"error: worker:0 on one: it ended: killed by {names[number]}" in output
