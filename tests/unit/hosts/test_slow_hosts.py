"""Outcomes are reported when the other hosts take longer, and not while they come in."""

from __future__ import annotations

import threading

import pytest
from support.builders import make_inventory

from tfdeploy.errors import Unreachable
from tfdeploy.hosts import parallel
from tfdeploy.hosts.fleet import Fleet


@pytest.fixture
def fleet():
    return Fleet(make_inventory("\n".join(f"[hosts.h{n}]\nworkers = 1" for n in range(4))))


def outcomes_while_one_waits(fleet):
    """Return the reports, of which the first one lets the last host answer."""
    reports, last = [], threading.Event()

    def act(agent):
        if agent.host == "h1":
            raise Unreachable(agent.host, "gone")
        if agent.host == "h3":
            last.wait()
        return agent.host

    def on_wait(outcomes):
        reports.append(set(outcomes))
        if len(outcomes) == 3:
            last.set()

    assert len(fleet.outcomes([f"h{n}" for n in range(4)], act, on_wait=on_wait)) == 4
    return reports


def test_what_the_others_answered_is_reported_while_one_is_waited_for(fleet):
    assert {"h0", "h1", "h2"} in outcomes_while_one_waits(fleet)


def test_the_same_outcomes_are_reported_once():
    reports = []
    waited = parallel.Waiting(["h0", "h1"], reports.append)
    waited.add("h0", 1)
    for _ in range(3):
        waited._last_s = 0.0  # long ago
        waited.check()
    waited.add("h1", 2)
    waited.check()
    assert reports == [{"h0": 1}]
