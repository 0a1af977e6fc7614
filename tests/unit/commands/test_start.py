"""When a start with `workers` in [training] looks again which hosts are free."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfdeploy.commands import start
from tfdeploy.commands.intent import RunOptions
from tfdeploy.errors import FleetError, LeaseConflict, Unreachable

CONFLICT = LeaseConflict("a", "GPU 0 is taken", "", "other")


@pytest.mark.parametrize(("error", "starts"), [
    (CONFLICT, 2),
    (FleetError([CONFLICT, Unreachable("b", "no answer")]), 1),  # its tasks may be running
])  # fmt: skip
def test_a_run_that_may_still_have_tasks_is_not_followed_by_another(monkeypatch, error, starts):
    started = []

    def fail(fleet, intent, watcher, **_):
        started.append(intent)
        raise error

    monkeypatch.setattr(start, "_start", fail)
    monkeypatch.setattr(start, "plan_on_free", lambda fleet, inventory, options: intent)
    intent = SimpleNamespace(all_hosts="all", options=RunOptions())
    with pytest.raises(type(error)):
        start.start_run(None, intent, start.UNWATCHED)
    assert len(started) == starts
