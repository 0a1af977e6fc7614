"""Events are fetched again when a run was started again, and hosts that fail are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import eventually, make_run
from support.events import NAME

from tfdeploy import run as runs
from tfdeploy.commands.following.tensorboard import fetching as module
from tfdeploy.commands.following.tensorboard.fetching import EventFetcher, shown_until
from tfdeploy.errors import AgentError, Cancelled, TransferFailed, Unreachable
from tfdeploy.hosts.events import HostIsBack
from tfdeploy.shared.protocol.reports import NewEvents, StateChange
from unit.output.samples import make_report


def written(task="worker:0"):
    return NewEvents({"/folder": [NAME]}, task)


def state(task="worker:0", state="READY"):
    return StateChange(make_report(task=task, state=state))


class Watcher:
    def __init__(self):
        self.away, self.back = [], []


class FakeFleet:
    """Hosts that send the next list of events each time they are followed, and then nothing."""

    answers, plans = [], []

    def __init__(self, inventory, version, cancel):
        self._cancel = cancel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def follow(self, run, placements, *, chief, events, on_event):
        assert events
        self.plans.append(run.plan.hosts)
        found = self.answers.pop(0) if self.answers else []
        return FakeFollowing(found, on_event, self._cancel)


class FakeFollowing(FakeFleet):
    is_active = True

    def __init__(self, events, on_event, cancel):
        self._events, self._on_event, self._cancel = events, on_event, cancel

    def events(self, deadline):
        while self._events:
            host, event = self._events.pop(0)
            self._on_event(host, event)
            yield host, event
        if self._cancel.wait(0.01):
            raise Cancelled("the fetcher was closed")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Fleet", FakeFleet)
    monkeypatch.setattr(module, "RECORD_S", 0.01)
    monkeypatch.setattr(module, "AFTER_START_S", (0.05,))
    monkeypatch.setattr(FakeFleet, "answers", [])
    monkeypatch.setattr(FakeFleet, "plans", [])
    made = make_run(tmp_path, hosts="[hosts.a]\nworkers = 2\n[hosts.b]\nworkers = 1")
    runs.save(made)
    return made


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def fetched():
    """The tasks of which something was fetched."""
    return []


@pytest.fixture
def fetcher(run, watcher, fetched, monkeypatch):
    watched = (watcher.away.append, watcher.back.append)
    made = EventFetcher(run, *watched, lambda old: runs.read_folder(old.folder), offline=False)
    made.reports = True

    def update(agent, event):
        if isinstance(event, NewEvents):
            fetched.append(event.of)

    monkeypatch.setattr(made.copies, "update", update)
    return made


def test_a_run_that_is_started_again_is_fetched_again_by_its_new_plan(run, fetcher, fetched):
    with fetcher:
        assert eventually(lambda: len(FakeFleet.plans) == 1)
        inventory = run.inventory.copy_with({"hosts": run.inventory.hosts[:1]})
        FakeFleet.answers[:] = [[("a", state(state="STOPPED"))], [("a", written("worker:1"))]]
        plan = runs.placing.make_plan_from_addresses(inventory)
        runs.save(replace(run, inventory=inventory, plan=plan, starts=1))
        assert eventually(lambda: fetched == ["worker:1"])
        assert FakeFleet.plans == [("a", "b"), ("a",), ("a",)]  # tasks start after the record


def test_a_host_has_been_looked_at_when_it_has_reported_all_its_tasks_or_failed(fetcher):
    FakeFleet.answers[:] = [[("a", written()), ("a", state(state="STOPPED"))]]
    with fetcher:
        assert eventually(lambda: fetcher._waiting == {"worker:1", "worker:2"})
        fetcher.dispatch("a", state("worker:1", "STOPPED"))
        assert not fetcher.looked.is_set()
        fetcher.dispatch("b", Unreachable("b", "no answer"))
        assert fetcher.looked.is_set()


def test_a_run_is_live_until_all_of_its_tasks_have_ended(fetcher):
    ends = [("a", state("worker:0", "SUCCEEDED")), ("b", state("worker:2", "STOPPED"))]
    FakeFleet.answers[:] = [ends]
    with fetcher:
        assert eventually(lambda: fetcher._live == {"a"})
        fetcher.dispatch("a", state("worker:1", "STOPPED"))
        assert not fetcher.is_live


def test_a_host_that_fails_is_reported_once_until_it_is_back(fetcher, watcher):
    full = TransferFailed("a", "the disk is full")
    for _ in range(2):
        fetcher.dispatch("a", full)
    assert (watcher.away, list(fetcher.errors)) == ([full], ["a"])
    fetcher.dispatch("a", HostIsBack())
    assert (watcher.back, fetcher.errors) == (["a"], {})


def test_errors_can_be_read_while_they_change(fetcher):
    fetcher._fail("a", Unreachable("a", "no answer"))
    for _ in fetcher.errors:
        fetcher._fail("b", Unreachable("b", "no answer"))
    assert fetcher.errors.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("error", "text"),
    [(TransferFailed("a", "disk full"), " until more can be written"), (AgentError("a", "no"), ""),
     (Unreachable("a", "no answer"), " until it answers")],
)  # fmt: skip
def test_what_is_shown_until_when(error, text):
    assert shown_until(error) == text
