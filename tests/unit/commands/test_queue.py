"""The queue of all hosts together."""

from __future__ import annotations

from types import SimpleNamespace

from tfdeploy.agent.machine.leases import Holder
from tfdeploy.agent.queue import places, report
from tfdeploy.agent.queue.places import Place
from tfdeploy.commands.queue import list_queue


def test_runs_of_the_same_second_are_listed_in_the_order_in_which_they_start(monkeypatch):
    waiting = [Place("port/2222", 99, 1_700_000_000, run, "worker:0") for run in ("a1", "b2", "c3")]
    monkeypatch.setattr(places, "all_places", lambda: waiting)
    monkeypatch.setattr(places, "holder", lambda place: Holder(project="digits"))
    monkeypatch.setattr(report.leases, "holder", lambda resource: None)
    outcomes = {"here": report.list_queue()}
    fleet = SimpleNamespace(agents={}, outcomes=lambda agents, ask: outcomes)
    assert [run.run for run in list_queue(fleet).waiting] == ["a1", "b2", "c3"]
