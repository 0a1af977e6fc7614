"""Events are fetched by a run's newest plan, and hosts that fail are reported once."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.builders import eventually, make_run

from tfdeploy import run as runs
from tfdeploy.commands.tensorboard import fetching as module
from tfdeploy.commands.tensorboard.fetching import EventFetcher, shown_until
from tfdeploy.errors import AgentError, TransferFailed, Unreachable

AWAY = Unreachable("a", "no answer")


class Watcher:
    def __init__(self):
        self.away, self.back = [], []


class Hosts:
    """What the next fetches raise or return as the errors of hosts; later ones return none."""

    def __init__(self):
        self.plans, self.results = [], []

    def collect_events(self, fleet, run):
        self.plans.append(run.plan.hosts)
        result = self.results.pop(0) if self.results else []
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def hosts(monkeypatch):
    made = Hosts()
    monkeypatch.setattr(module, "Fleet", lambda *_, **__: nullcontext())
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "collect_events", made.collect_events)
    return made


@pytest.fixture
def run(tmp_path):
    made = make_run(tmp_path, hosts="[hosts.a]\nworkers = 2\n[hosts.b]\nworkers = 1")
    runs.save(made)
    return made


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def fetcher(run, hosts, watcher):
    watched = (watcher.away.append, watcher.back.append)
    return EventFetcher(run, *watched, lambda old: runs.read_folder(old.folder))


def test_a_run_that_is_started_again_is_fetched_by_its_new_plan(run, fetcher, hosts):
    with fetcher:
        assert eventually(lambda: hosts.plans)
        inventory = run.inventory.copy_with({"hosts": run.inventory.hosts[:1]})
        plan = runs.placing.make_plan_from_addresses(inventory)
        runs.save(replace(run, inventory=inventory, plan=plan, starts=1))
        assert eventually(lambda: hosts.plans[-1] == ("a",))
    assert hosts.plans[0] == ("a", "b")


def test_a_host_that_fails_is_reported_once_until_it_is_back(fetcher, hosts, watcher):
    hosts.results[:] = [[AWAY], [AWAY], [], [AWAY]]
    with fetcher:
        assert eventually(lambda: len(hosts.plans) > 4)
        assert not fetcher.errors
    assert (watcher.away, watcher.back) == ([AWAY, AWAY], ["a", "a"])


def test_a_run_that_cannot_be_fetched_at_all_is_reported(fetcher, hosts, watcher):
    hosts.results[:] = [AgentError("a", "it was resumed elsewhere")]
    with fetcher:
        assert fetcher.looked.wait(10)
    assert [*fetcher.errors] == ["a"]
    assert len(hosts.plans) == len(watcher.away) == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [(TransferFailed("a", "disk full"), " until more can be written"), (AgentError("a", "no"), ""),
     (AWAY, " until it answers")],
)  # fmt: skip
def test_what_is_shown_until_when(error, text):
    assert shown_until(error) == text
