"""A task that has ended, for tests of what is reported of it."""

from __future__ import annotations

import os

import pytest
from support.builders import make_launch

from tfdeploy.agent import paths
from tfdeploy.shared import records
from tfdeploy.shared.records import TaskState


@pytest.fixture
def log(root):
    """The log of worker:0, which has succeeded."""
    directory = paths.task("p", "r", "worker:0")
    os.makedirs(paths.work(directory))
    os.makedirs(paths.logs("p", "r"))
    records.write(paths.launch(directory), records.to_json(make_launch()))
    records.write(paths.state(directory), records.to_json(TaskState("SUCCEEDED", 0.0, pid=7)))
    return root / "p" / "runs" / "r" / "logs" / "worker-0.log"
