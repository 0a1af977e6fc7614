"""A stop stops every task, whatever becomes of what it prints."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.commands.stop import stop_reachable
from tfdeploy.planning import placing
from tfdeploy.run import Run

HOSTS = '[hosts.a]\naddress = "10.0.0.1"\nworkers = 1\n[hosts.b]\naddress = "10.0.0.2"\nps = 1\n'


class FleetThatWaits:
    """A fleet whose hosts all answer late that nothing is left to stop."""

    def __init__(self):
        self.asked = []

    def outcomes(self, hosts, ask, on_wait):
        self.asked += hosts
        on_wait({})
        return {host: [] for host in hosts}


@pytest.mark.parametrize("error", [SystemExit(1), OSError("no space")])
def test_a_stop_continues_if_its_output_is_closed(error, monkeypatch):
    monkeypatch.setattr("tfdeploy.commands.stop._wait_for_unasked", lambda *_: [])
    inventory = make_inventory(HOSTS)
    run = Run("run-1", "f00d", "a9e", inventory, placing.make_plan_from_addresses(inventory))
    fleet = FleetThatWaits()

    def print_so_far(states, waiting):
        raise error

    stop_reachable(fleet, run, on_wait=print_so_far)
    assert {"a", "b"} <= set(fleet.asked)
