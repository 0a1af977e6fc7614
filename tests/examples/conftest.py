"""The baseline of the recipes: the same net, trained by one process."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.recipes import RecipeRun

from examples.forks import train


@dataclass(frozen=True)
class Baseline(RecipeRun):
    """A run whose checkpoint has been evaluated once."""

    measured: float

    def accuracy(self) -> float:
        return self.measured


@pytest.fixture(scope="session")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    """Train once for all of pytest-xdist's workers: the first one trains, the others wait."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "serial"
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            done = train("serial", folder)
            data = {
                "tasks": done.tasks,
                "collected": str(done.collected),
                "measured": done.accuracy(),
            }
            result.write_text(json.dumps(data))
    data = json.loads(result.read_text())
    collected = Path(data["collected"])
    return Baseline("serial", folder / "examples", data["tasks"], collected, data["measured"])
