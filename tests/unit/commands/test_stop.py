"""A stop stops every task, and says of which ones it is not sure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

from support.builders import make_inventory

from tfdeploy.commands.stop import StopResult, stop_reachable, unconfirmed_errors
from tfdeploy.planning import placing
from tfdeploy.run import Run
from tfdeploy.shared.protocol.runs import StoppedTask

HOSTS = '[hosts.a]\naddress = "10.0.0.1"\nworkers = 1\n[hosts.b]\naddress = "10.0.0.2"\nps = 1\n'


class FleetThatWaits:
    """A fleet whose hosts all answer late that nothing is left to stop."""

    def __init__(self):
        self.asked = []

    def outcomes(self, hosts, ask, on_wait):
        self.asked += hosts
        on_wait({})
        return {host: [] for host in hosts}


def make_run():
    inventory = make_inventory(HOSTS)
    return Run("run-1", "f00d", "a9e", inventory, placing.make_plan_from_addresses(inventory))


class FleetThatGoesOn(FleetThatWaits):
    """A fleet whose ps is READY after its stop."""

    def outcomes(self, hosts, ask, on_wait):
        states = {"a": StoppedTask("worker:0", "STOPPED", [], left=True),
                  "b": StoppedTask("ps:0", "READY", [])}  # fmt: skip
        return {host: [states[host]] for host in hosts}


def test_a_persons_stop_asks_each_host_for_all_tasks_once_its_last_ones_are_stopped():
    requests = []

    class Agents(FleetThatWaits):
        def outcomes(self, hosts, ask, on_wait):
            for host in hosts:
                agent = SimpleNamespace(host=host, ask=lambda request, _: requests.append(request))
                with suppress(AttributeError):  # there is no answer
                    ask(agent)
            return {host: [] for host in hosts}

    stop_reachable(Agents(), replace(make_run(), launched="first"), launched="first")
    assert not any(request.others for request in requests)
    requests.clear()
    stop_reachable(Agents(), make_run())
    assert [(r.tasks, r.others) for r in requests][:2] == [(["worker:0"], True), (["ps:0"], True)]


def test_a_task_that_runs_after_its_stop_is_an_error_unless_it_is_of_another_launch():
    (error,) = stop_reachable(FleetThatGoesOn(), make_run()).errors
    assert str(error).startswith("ps:0 on b: it is READY after the stop\n")
    assert stop_reachable(FleetThatGoesOn(), make_run(), launched="first").errors == ()


def test_each_task_that_may_still_run_is_named_with_the_command_for_later():
    run = make_run()
    stopped = StopResult({}, None, unconfirmed=tuple(run.plan.placements))
    messages = [str(error) for error in unconfirmed_errors(run, stopped)]
    assert [text.partition("\n")[0] for text in messages] == [
        "ps:0 on b: may still be running: no answer",
        "worker:0 on a: may still be running: no answer",
    ]
    assert all("tfdeploy stop" in text and "--run run-1" in text for text in messages)
