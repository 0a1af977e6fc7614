"""--wait: what is waited for, what is shown of it, and what is not waited for."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from support.builders import make_launch

from tfdeploy.commands.preflight import wait
from tfdeploy.errors import AgentError, FleetError, LeaseConflict, PlanError, Unreachable
from tfdeploy.shared.protocol.preflight import Holders, Taken

MINE = "port 2222 is taken by ps:0 of run r-7 of digits, started by ada {}s ago"


def conflict(message="", run="r-7"):
    message = message or MINE.format(5)
    return LeaseConflict("a", message, "wait until it ends", run)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(wait, "POLL_S", 0.0)


@pytest.fixture
def shown():
    return []


class FakeFleet:
    """Hosts that give each of `answers` to one question after the other: what is taken on host a,
    or an error."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.requests = []

    def outcomes(self, hosts, ask):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            return {"a": answer}

        def answer_request(request):
            self.requests.append(request)
            return Holders([Taken(message, "", run) for message, run in answer])

        return {"a": ask(SimpleNamespace(host="a", ask=answer_request))}


def start_when_free(fleet, shown, *outcomes, wait_s=math.inf):
    """Start with `outcomes` of one try after the other, and show into `shown`."""
    launch = make_launch(port=2222, gpus=[1])
    plan = SimpleNamespace(placements=[SimpleNamespace(task="worker:0", host="a")], hosts=["a"])
    left = [*outcomes]

    def start():
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @contextmanager
    def waiting():
        yield lambda errors: shown.append([str(error.message) for error in errors])

    find_conflicts = partial(wait.find_conflicts, fleet, plan, [launch])
    return wait.start_when_free(start, wait_s, waiting, find_conflicts)


def test_a_start_that_succeeds_asks_nobody(shown):
    fleet = FakeFleet()
    assert start_when_free(fleet, shown, "run") == "run"
    assert (fleet.requests, shown) == ([], [])


def test_a_run_that_holds_a_port_is_waited_for_and_shown_once(shown):
    later = [(MINE.format(9), "r-7"), ("GPU 1 is taken by worker:0 of run r-7 of digits", "r-7")]
    fleet = FakeFleet(later, later, [])
    assert start_when_free(fleet, shown, conflict(), "run") == "run"
    assert shown == [[MINE.format(5)]]
    assert (fleet.requests[0].ports, fleet.requests[0].need.gpus) == ({"worker:0": [2222]}, [1])


def test_another_holder_is_shown(shown):
    other = "port 2222 for ps:0 is taken by pid 7 (nginx)"
    fleet = FakeFleet([(MINE.format(9), "r-7")], [(other, "")], [(other, "")], [])
    assert start_when_free(fleet, shown, conflict(), "run") == "run"
    assert shown == [[MINE.format(5)], [other]]


def test_of_two_that_wait_one_may_lose_and_waits_again(shown):
    other = conflict("port 2222 is taken by ps:0 of run r-8 of x", "r-8")
    fleet = FakeFleet([], [])
    assert start_when_free(fleet, shown, conflict(), other, "run") == "run"
    assert shown == [[MINE.format(5)], [other.message]]


@pytest.mark.parametrize(
    "error",
    [
        AgentError("a", "the program x is not on this host"),
        PlanError("no"),
        FleetError([conflict(), AgentError("b", "the program x is not on this host")]),
    ],
)
def test_a_refusal_that_waiting_cannot_help_is_raised_at_once(shown, error):
    with pytest.raises(type(error)) as raised:
        start_when_free(FakeFleet(), shown, error)
    assert (raised.value, shown) == (error, [])


def test_without_the_option_a_conflict_is_raised_at_once(shown):
    with pytest.raises(LeaseConflict):
        start_when_free(FakeFleet(), shown, conflict(), wait_s=0)
    assert shown == []


def test_at_the_end_of_the_time_the_last_holder_is_named(shown):
    taken = [("port 2222 is taken by x of run r-9 of y", "r-9")]
    fleet = FakeFleet(*[taken] * 10_000)
    with pytest.raises(FleetError) as raised:
        start_when_free(fleet, shown, conflict(), wait_s=0.01)
    assert "is taken by x of run r-9" in str(raised.value)
    assert raised.value.hint == "waited 0s"


def test_a_host_that_does_not_answer_for_a_moment_is_waited_for(shown):
    fleet = FakeFleet(Unreachable("a", "no route"), [])
    assert start_when_free(fleet, shown, conflict(), "run") == "run"
    assert shown == [[MINE.format(5)], ["no route"]]


def test_a_host_that_refuses_is_not_waited_for(shown):
    fleet = FakeFleet(AgentError("a", "the agent failed"))
    with pytest.raises(AgentError, match="the agent failed"):
        start_when_free(fleet, shown, conflict(), "run")
