"""Programs without TensorFlow: those of docs/jax.md and docs/pytorch.md train on two hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.ports import ADDRESS, free_ports
from support.waiting import until

if TYPE_CHECKING:
    from support.projects import Project

    from .conftest import World

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Not in .venv: Keras would import it in each process with TensorFlow, which takes half a second.
JAX, JAX_FOLDER = "jax>=0.10,<0.11", ROOT / "build/jax"
FRAMEWORKS = ["jax", "torch"]
# Debian's PyTorch: a wheel from PyPI brings gigabytes of CUDA.
PYTHONS = {"jax": sys.executable, "torch": "/usr/bin/python3"}
# Without it, the program of a page takes a CPU until it is stopped.
PACE = '    __import__("time").sleep(0.1)'
PAGES = {"jax": "jax.md", "torch": "pytorch.md"}
# PyTorch 1.13 needs the last two words with Python 3.11.
TORCHRUN = (
    "torchrun --nnodes={num_workers} --node_rank={index} --redirects=0:1 --tee=0:1 "
    "--master_addr={chief_address} --master_port={chief_port} train.py"
)


@pytest.fixture(scope="module")
def packages() -> Path:
    """Return a folder with JAX, which is installed once."""
    if not JAX_FOLDER.exists():
        JAX_FOLDER.parent.mkdir(exist_ok=True)
        unfinished = JAX_FOLDER.with_name(f"jax-{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--target", unfinished, JAX], check=True)
        try:
            unfinished.rename(JAX_FOLDER)
        except OSError:  # another process of the tests was faster
            shutil.rmtree(unfinished)
    return JAX_FOLDER


def block(framework: str, language: str) -> str:
    """Return the block of code in a language of a framework's page."""
    page = (ROOT / "docs" / PAGES[framework]).read_text()
    [found] = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return str(found)


def project_of_page(
    world: World, packages: Path, framework: str, training: dict[str, Any] | None = None
) -> Project:
    """Create a project with the program of a page on two hosts, and with its [training] or
    another."""
    training = training or tomllib.loads(block(framework, "toml"))["training"]
    common = {"workers": 1, "address": ADDRESS, "python": PYTHONS[framework]}
    hosts = {
        name: {
            **common,
            "directory": str(world.base / framework / name),
            "ports": free_ports(2),
            "env": {"PYTHONPATH": str(packages)} if framework == "jax" else {},
        }
        for name in ("one", "two")
    }
    project = world.project(hosts=hosts, training=training)
    (project.folder / "train.py").write_text(block(framework, "python"))
    return project


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_program_of_the_page_is_checked_trains_and_is_collected(by_ssh, packages, framework):
    project = project_of_page(by_ssh, packages, framework)
    hosts = json.loads(project.ok("check", "--json"))["hosts"]
    assert [[*host["imports"]] for host in hosts.values()] == [[framework]] * 2
    assert all(host["imports"][framework] for host in hosts.values())
    output = project.ok("run")
    assert "from step 0" in output
    assert re.search(r"step 100 \[+ ?1\. +-2\. +3\. *\]", output)
    [file] = (project.run_folder / "outputs/checkpoints").iterdir()
    assert f"output {file} (" in output
    assert "no checkpoint" not in output
    assert "TensorFlow" not in output


def test_torchrun_is_ready_when_it_has_met_the_others_at_the_chiefs_port(by_ssh, packages):
    project = project_of_page(by_ssh, packages, "torch", {"command": TORCHRUN, "role": "tf_config"})
    tasks = json.loads(project.ok("plan", "--json"))["tasks"]
    assert [task["ready"] for task in tasks] == ["rendezvous", "rendezvous"]
    output = project.ok("run")
    assert re.search(r"step 100 \[+ ?1\. +-2\. +3\. *\]", output)
    history = project.ok("logs")
    assert history.count("from step 0") == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_workers_continue_from_the_chiefs_file_after_a_kill_of_any(by_ssh, packages, framework):
    project = project_of_page(by_ssh, packages, framework)
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
