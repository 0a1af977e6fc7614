"""What the recipes are compared with: the same net, trained by one process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from examples.recipes import Done, run


@dataclass(frozen=True)
class Baseline(Done):
    """A run whose checkpoint has been evaluated, once for all who ask."""

    measured: float

    def accuracy(self) -> float:
        return self.measured


@pytest.fixture(scope="session")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    done = run("serial", tmp_path_factory.mktemp("serial"))
    return Baseline(done.recipe, done.folder, done.said, done.accuracy())
