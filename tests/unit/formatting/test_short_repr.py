"""Objects of the API are one line in a notebook."""

from __future__ import annotations

from pathlib import Path

import tfdeploy
from tfdeploy.commands.check import CheckResult
from tfdeploy.commands.collect import CollectResult
from tfdeploy.commands.intent import Intent
from tfdeploy.commands.running.follow import RunEnd, Watcher
from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.errors import HostError
from tfdeploy.release.snapshot import Release
from unit.output.samples import make_report, make_run

MAX_CHARACTERS = 400


def test_a_repr_has_what_differs_from_the_defaults():
    errors = [HostError("one", "gone")]
    assert repr(CheckResult(errors=errors)) == "CheckResult(errors=[HostError('gone')])"
    assert repr(CheckResult(errors=errors * 9)) == "CheckResult(errors=[HostError('gone'), ...])"
    ended = RunEnd(0, None, "succeeded")
    assert repr(ended) == "RunEnd(exit=0, failure=None, result='succeeded')"
    assert repr(Watcher()) == "Watcher()"
    collected = CollectResult(Path("/r"), "one:/x", (), 2, 3)
    assert repr(collected).startswith("CollectResult(folder=PosixPath('/r'), source='one:/x', ")


def test_large_objects_have_short_reprs(tmp_path):
    run = make_run()
    tasks = tuple(TaskStatus(placement, make_report()) for placement in run.plan.placements) * 99
    intent = Intent(run.inventory, run.plan, Release("f00d", tmp_path, {}, {}), {}, {})
    for large in (run, run.inventory, RunStatus(run, tasks, ()), tasks[0], intent, make_report()):
        assert len(repr(large)) < MAX_CHARACTERS, repr(large)
        assert "\n" not in repr(large)


def test_a_run_is_found_by_the_path_of_its_hosts_file_as_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tfdeploy.Run("a", "hosts.toml") == tfdeploy.Run("a", tmp_path / "hosts.toml")
