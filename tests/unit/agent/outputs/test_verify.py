"""Which Python reads a checkpoint: one that has the task's packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.host_runs import create_run

from tfdeploy.agent import paths
from tfdeploy.agent.outputs.verify import task_python


@pytest.fixture
def python(root):
    """The Python of the environment e1."""
    python = Path(paths.environment("p", "e1"), "bin", "python")
    python.parent.mkdir(parents=True)
    python.write_text("")
    return str(python)


def held(**launch):
    folder = create_run("r", "worker:0", **launch)
    return os.path.join(folder, "worker-0", "held", "checkpoints", "ckpt-7")


def test_a_checkpoint_is_read_in_the_environment_of_its_task(python):
    assert task_python(held(environment="e1")) == python


def test_without_an_environment_it_is_read_by_the_hosts_python(python):
    assert task_python(held()) == sys.executable
    assert task_python("/elsewhere/ckpt-7") == sys.executable


def test_an_environment_that_is_gone_is_not_used(python):
    os.remove(python)
    assert task_python(held(environment="e1")) == sys.executable
