"""Programs without TensorFlow: those of docs/jax.md and docs/pytorch.md on two hosts.

That they train is in tests/transcripts/jax.console and pytorch.console.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from support import jax_packages
from support.pages import block
from support.ports import ADDRESS, free_ports
from support.waiting import until

if TYPE_CHECKING:
    from support.projects import Project

    from .conftest import World

pytestmark = pytest.mark.slow

FRAMEWORKS = ["jax", "torch"]
# Debian's PyTorch: a wheel from PyPI brings gigabytes of CUDA.
PYTHONS = {"jax": sys.executable, "torch": "/usr/bin/python3"}
# Without it, the program of a page takes a CPU until it is stopped.
PACE = '    __import__("time").sleep(0.1)'
PAGES = {"jax": "docs/jax.md", "torch": "docs/pytorch.md"}
# PyTorch 1.13 needs the last two words with Python 3.11.
TORCHRUN = (
    "torchrun --nnodes={num_workers} --node_rank={index} --redirects=0:1 --tee=0:1 "
    "--master_addr={chief_address} --master_port={chief_port} train.py"
)


def project_of_page(
    world: World, framework: str, training: dict[str, Any] | None = None
) -> Project:
    """Create a project with the program of a page on two hosts, and with its [training] or
    another."""
    training = training or tomllib.loads(block(PAGES[framework], "toml"))["training"]
    common = {"workers": 1, "address": ADDRESS, "python": PYTHONS[framework]}
    hosts = {
        name: {
            **common,
            "directory": str(world.base / framework / name),
            "ports": free_ports(2),
            "env": {"PYTHONPATH": str(jax_packages.folder())} if framework == "jax" else {},
        }
        for name in ("one", "two")
    }
    project = world.project(hosts=hosts, training=training)
    (project.folder / "train.py").write_text(block(PAGES[framework], "python"))
    return project


def test_torchrun_is_ready_when_it_has_met_the_others_at_the_chiefs_port(by_ssh):
    project = project_of_page(by_ssh, "torch", {"command": TORCHRUN, "role": "tf_config"})
    tasks = json.loads(project.ok("plan", "--json"))["tasks"]
    assert [task["ready"] for task in tasks] == ["rendezvous", "rendezvous"]
    output = project.ok("run")
    assert re.search(r"step 100 \[+ ?1\. +-2\. +3\. *\]", output)
    history = project.ok("logs")
    assert history.count("from step 0") == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_workers_continue_from_the_chiefs_file_after_a_kill_of_any(by_ssh, framework):
    project = project_of_page(by_ssh, framework)
    train = project.folder / "train.py"
    train.write_text(re.sub(r"^for step .*", rf"\g<0>\n{PACE}", train.read_text(), flags=re.M))
    project.ok("push")
    project.ok("start", "--", "--steps=1000000000")
    for times, lost in enumerate(("worker:0", "worker:1"), 1):
        until(lambda: re.search(r"step \d+ \[", _attempts(project, "worker:0")[-1]), "a file")
        os.kill(project.status()[lost]["pid"], signal.SIGKILL)
        steps = _wait_until_both_have_continued(project, times)
        assert len(set(steps)) == 1
        assert int(steps[0]) > 0
        restarts = {name: task["restarts"] for name, task in project.status().items()}
        assert restarts == {"worker:0": times, "worker:1": times}
    project.ok("stop")
    assert {task["exit"] for task in project.status().values()} <= {
        -signal.SIGTERM,
        -signal.SIGABRT,
    }


def _attempts(project: Project, task: str) -> list[str]:
    """Return what the task logged in each attempt, beginning with the step that it starts from."""
    host = {"worker:0": "one", "worker:1": "two"}[task]
    log = project.log_file(host, task).read_text()
    return re.split(r"from step (?=\d)", log)[1:] or [""]


def _wait_until_both_have_continued(project: Project, times: int) -> list[str]:
    """Return the steps from which they have continued."""

    def attempts() -> list[list[str]]:
        return [_attempts(project, task) for task in ("worker:0", "worker:1")]

    until(
        lambda: [len(each) for each in attempts()] == [times + 1] * 2, "both workers to continue",
        lambda: [sum(map(len, each)) for each in attempts()],
    )  # fmt: skip
    return [each[-1].split()[0] for each in attempts()]
