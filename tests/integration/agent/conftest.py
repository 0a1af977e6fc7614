"""Tasks under real supervisors."""

from __future__ import annotations

import secrets

import pytest

from .supervised_task import SupervisedTask


@pytest.fixture
def supervise(root):
    """Start tasks of one run under real supervisors, and kill them after the test."""
    tasks = []
    run = secrets.token_hex(4)  # unique, because other tests of this machine see the processes

    def start(code, **changes):
        tasks.append(SupervisedTask(root, code, run=run, **changes))
        return tasks[-1]

    yield start
    for task in tasks:
        task.kill()
