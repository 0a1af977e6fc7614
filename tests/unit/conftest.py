"""What all unit tests share: hypothesis draws the same examples in every run."""

from __future__ import annotations

import os
import secrets
import sys

import pytest
from hypothesis import settings

from unit.kept import Kept

settings.register_profile("unit", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("unit")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The agent's root on this host: where it lies says where everything else does."""
    folder = tmp_path / "root"
    (folder / "agent").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", [os.fspath(folder / "agent" / "abc.pyz")])
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory of the test's own, for commands that start there."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", os.fspath(folder))
    return folder


@pytest.fixture
def keep(root):
    """Begins tasks of one run under real supervisors; none of them outlives the test."""
    kept = []
    run = secrets.token_hex(4)  # tasks are known by it, also to the tests beside this one

    def begin(code, **changes):
        kept.append(Kept(root, code, run=run, **changes))
        return kept[-1]

    yield begin
    for each in kept:
        each.kill()
