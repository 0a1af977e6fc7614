"""A start that was interrupted does not go on to try for what another run has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.launching import hosts as module
from tfdeploy.commands.launching.hosts import Launching
from tfdeploy.errors import LeaseConflict
from tfdeploy.planning import launch
from tfdeploy.run import Run
from tfdeploy.shared.protocol.reports import Started

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
