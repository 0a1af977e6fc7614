"""A start that was interrupted does not go on to try for what another run has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.following import launching as module
from tfdeploy.commands.following.launching import Launching
from tfdeploy.commands.push import StartWatcher
from tfdeploy.errors import LeaseConflict, TaskNotReady
from tfdeploy.planning import launch
from tfdeploy.run import Run
from tfdeploy.shared.protocol.reports import Started, StateChange
from tfdeploy.shared.records import GETS_CHECKPOINTS, HAS_PLACES, TaskReport

HOSTS = "[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1"
OTHER_RUN = "r-9"  # greater than r-1, so r-1 waits for it


class Agent:
    """The agent of host a: another run has its port until `tries` start requests were refused."""

    host = "a"

    def __init__(self, tries, on_refused=lambda: None):
        self.tries, self._on_refused, self.is_closed = tries, on_refused, False

    def stream_encoded(self, query):
        return self

    def open(self):
        if self.tries:
            self.tries -= 1
            self._on_refused()
            raise LeaseConflict(self.host, "port 2222 is taken", "", OTHER_RUN)
        return Started(0)

    def close(self):
        self.is_closed = True


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


@pytest.fixture
def launching(monkeypatch):
    """Return a function that makes a Launching of one agent."""
    monkeypatch.setattr(module, "LEASE_RETRY_S", 0.0)
    inventory, plan = make_inventory(HOSTS), make_plan(HOSTS)
    run = Run("r-1", "f00d", "a9e", inventory, plan)

    def make(agent):
        fleet = SimpleNamespace(each=lambda hosts, act: {agent.host: act(agent)})
        launches = launch.make(inventory, plan, run.names, "s3cret")
        return Launching(fleet, run, lambda host: launches)

    return make


def test_a_start_waits_for_a_run_with_a_greater_id(launching):
    agent = Agent(tries=3)
    one = launching(agent)
    assert one.start_hosts() == {"a": Started(0)}
    assert one.streams == {"a": agent}
    assert not agent.is_closed


def test_an_interrupted_start_stops_waiting(launching):
    agent = Agent(tries=3, on_refused=lambda: one.close())
    one = launching(agent)
    with pytest.raises(LeaseConflict):
        one.start_hosts()
    assert agent.tries == 2


def test_a_stream_that_comes_after_an_interruption_is_closed(launching):
    agent = Agent(tries=0)
    one = launching(agent)
    one.close()
    one.start_hosts()
    assert agent.is_closed


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
