"""What the agent refuses, and why."""

from __future__ import annotations

import os
import sys

import pytest

from support.builders import make_launch
from tfdeploy.agent import paths
from tfdeploy.agent.machine import ports
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import start


def port_refusal(port, task="worker:1"):
    with pytest.raises(Refusal) as error:
        ports.require_free(port, task)
    return error.value.message, error.value.hint


def start_refusal(**changes):
    """Start two launches, the second with `changes`; return the refusal's message and hint.

    Neither task may have started.
    """
    valid = make_launch(index=9, argv=[sys.executable])
    with pytest.raises(Refusal) as refused:
        start.start_tasks([valid, make_launch(**{"argv": [sys.executable], **changes})])
    assert not os.path.exists(paths.task("p", "r", "worker:9"))
    return refused.value.message, refused.value.hint


def reasons(answer):
    """Return why each run or release was not removed, by its name."""
    return {kept.name: kept.why for kept in answer.kept}
