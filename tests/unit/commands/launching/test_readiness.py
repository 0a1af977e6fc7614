"""When a start counts as READY, and what it says of tasks that are not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.intent import StartWatcher
from tfdeploy.commands.launching import readiness as module
from tfdeploy.errors import TaskNotReady
from tfdeploy.run import Run
from tfdeploy.shared.protocol.reports import StateChange
from tfdeploy.shared.records import GETS_CHECKPOINTS, HAS_PLACES, TaskReport

HOSTS = "[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1"


class Reports:
    """The events of two hosts: (seconds since the one before, task, state, reason)."""

    def __init__(self, monkeypatch, *events):
        self.now, self._left = 1000.0, list(events)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def events(self, deadline):
        while self._left:
            seconds, task, state, reason = self._left[0]
            if deadline is not None and self.now + seconds > deadline:
                return
            self.now += seconds
            del self._left[0]
            yield "a", StateChange(TaskReport(task, state, 0.0, None, None, 0, reason))


def test_the_time_in_which_a_worker_gets_the_chiefs_checkpoints_does_not_count(monkeypatch):
    run = Run("r-1", "f00d", "a9e", make_inventory(HOSTS), make_plan(HOSTS))
    following = Reports(
        monkeypatch,
        (1.0, "worker:0", "RUNNING", ""),
        (1.0, "worker:1", "STARTING", GETS_CHECKPOINTS),
        (100.0, "worker:0", "READY", ""),
        (1000.0, "worker:1", "RUNNING", ""),
        (100.0, "worker:1", "READY", ""),
    )
    assert module.wait_until_ready(None, run, following, StartWatcher())


def test_each_host_says_once_what_its_first_task_lacks(monkeypatch):
    reasons = {
        ("worker:0", "a"): HAS_PLACES,
        ("worker:1", "a"): "port 2223 is taken by ann's run r-2, started 1s ago",
        ("worker:2", "a"): "port 2224 is taken by ann's run r-2, started 2s ago",
        ("worker:3", "b"): HAS_PLACES,
    }
    tasks = [
        SimpleNamespace(
            placement=SimpleNamespace(host=host),
            report=TaskReport(task, "QUEUED", 0.0, None, None, 0, reason),
        )
        for (task, host), reason in reasons.items()
    ]
    monkeypatch.setattr(module, "status", lambda *_: SimpleNamespace(tasks=tasks, errors=()))
    found = [(error.host, error.message) for error in module._queue_reasons(None, None)]
    assert found == [("a", reasons["worker:1", "a"]), ("b", HAS_PLACES)]


@pytest.mark.parametrize("state", ["BACKOFF", "RUNNING"])
def test_a_late_task_that_has_ended_before_is_named_with_its_end_not_with_its_port(
    monkeypatch, state
):
    plan = make_plan(HOSTS)
    run = Run("r-1", "f00d", "a9e", make_inventory(HOSTS), plan)
    ended = "killed by SIGSEGV; restart 1 of 10"
    report = TaskReport("worker:0", state, 1.0, 7, -11, 1, ended, health="NOT_LISTENING")
    tasks = (SimpleNamespace(placement=plan.placements[0], report=report),)
    monkeypatch.setattr(module, "status", lambda *_: SimpleNamespace(tasks=tasks, errors=()))
    with pytest.raises(TaskNotReady) as late:
        module._raise_not_ready(None, run, {"worker:0"})
    assert late.value.message == f"not READY within 180 s; {ended}"
    assert late.value.hint == ""
