"""A console whose output a test can read."""

from __future__ import annotations

import pytest

from tfdeploy.output import batching
from tfdeploy.output.console import Console


@pytest.fixture
def printed(capsys):
    """Return a function that calls `show(console)` and returns what it printed on standard
    output."""

    def call(show):
        show(Console())
        return capsys.readouterr().out

    return call


@pytest.fixture
def slow_batches(monkeypatch):
    """Let batches wait until something flushes them, however slow this machine is."""
    monkeypatch.setattr(batching, "GROUP_S", 3600.0)
    monkeypatch.setattr(batching, "QUIET_S", 3600.0)
