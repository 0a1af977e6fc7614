"""Many hosts at once: none waits for another that is slow or gone, and Ctrl-C waits for none."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time

import pytest
from support.builders import make_inventory

from tfdeploy.errors import AgentError, FleetError, Unreachable
from tfdeploy.hosts import fleet, parallel
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.fleet import Fleet


def hosts(count):
    """Return a fleet of hosts to which no test connects."""
    tables = (f"[hosts.gpu{n:03}]\nport = {10_000 + n}\nworkers = 1" for n in range(count))
    return Fleet(make_inventory("\n".join(tables)))


# Outcomes


def test_every_outcome_is_kept_in_the_order_of_the_hosts():
    def act(agent):
        if agent.host.endswith("1"):
            raise AgentError(agent.host, "no")
        return agent.host

    names = [f"gpu{n:03}" for n in range(40)][::-1]
    outcomes = hosts(40).outcomes(names, act)
    assert list(outcomes) == names
    assert {h for h, o in outcomes.items() if isinstance(o, AgentError)} == {
        "gpu001", "gpu011", "gpu021", "gpu031",
    }  # fmt: skip
    assert all(outcomes[host] in (host,) for host in names if not host.endswith("1"))


@pytest.mark.parametrize(("threads", "is_parked"), [(40, False), (39, True)])
def test_with_more_hosts_than_threads_agents_are_given_back_after_each_use(
    monkeypatch, threads, is_parked
):
    monkeypatch.setattr(fleet, "THREADS", threads)
    parked = []
    monkeypatch.setattr(Agent, "park", lambda agent: parked.append(agent.host))
    names = [f"gpu{n:03}" for n in range(40)]
    hosts(40).outcomes(names, lambda agent: agent.host)
    assert sorted(parked) == (names if is_parked else [])


def test_each_raises_all_errors_after_every_host_is_done():
    done = []

    def act(agent):
        done.append(agent.host)
        raise Unreachable(agent.host, "gone")

    with pytest.raises(FleetError) as raised:
        hosts(50).each([f"gpu{n:03}" for n in range(50)], act)
    assert len(done) == len(raised.value.errors) == 50
    assert str(raised.value) == "gpu[000-049]: gone"


def test_a_failure_is_reported_when_it_happens():
    """While another host is still at work."""
    reported = threading.Event()

    def act(agent):
        if agent.host == "gpu000":
            raise Unreachable(agent.host, "gone")
        return reported.wait(20)

    outcomes = hosts(2).outcomes(["gpu000", "gpu001"], act, lambda error: reported.set())
    assert outcomes["gpu001"] is True


def test_an_unexpected_exception_is_raised_after_all_are_done():
    done = []

    def act(agent):
        if agent.host == "gpu000":
            raise ZeroDivisionError
        done.append(agent.host)

    with pytest.raises(ZeroDivisionError):
        hosts(3).outcomes(["gpu000", "gpu001", "gpu002"], act)
    assert sorted(done) == ["gpu001", "gpu002"]


def test_hosts_do_not_wait_for_one_in_twenty_that_is_unreachable():
    """None of those is given up until all the others are done."""
    many = hosts(1000)
    gone = {f"gpu{n:03}" for n in range(0, 1000, 20)}
    living, all_living, waited = [], threading.Event(), []

    def act(agent):
        if agent.host in gone:
            waited.append(all_living.wait(60))
            raise Unreachable(agent.host, "no answer")
        living.append(agent.host)
        if len(living) == 950:
            all_living.set()

    outcomes = many.outcomes(many.agents, act)
    assert sum(isinstance(outcome, Unreachable) for outcome in outcomes.values()) == 50
    assert waited == [True] * 50


def test_the_number_of_threads_is_limited():
    most = []

    def act(agent):
        most.append(threading.active_count())
        time.sleep(0.001)

    before = threading.active_count()
    many = hosts(600)
    many.outcomes(many.agents, act)
    assert max(most) <= before + fleet.THREADS


def test_many_hosts_raise_the_limit_of_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        hosts(fleet.MANY_HOSTS)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, hard)
        hosts(fleet.MANY_HOSTS + 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 1 << 16), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Ctrl-C. The main thread of a process of its own is interrupted, as in a terminal.


@pytest.fixture
def listening():
    """Handle Ctrl-C as in a terminal: processes that a shell starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_call_interrupted_by_ctrl_c_ends_before_the_next_call_to_its_host(listening, monkeypatch):
    """A stop must not overtake the start that it undoes."""
    monkeypatch.setattr(parallel, "INTERRUPT_WAIT_S", 0.05)
    two, calls = hosts(2), []
    started, go_on = threading.Event(), threading.Event()

    def start(agent):
        if agent.host == "gpu000":
            started.set()
            go_on.wait(20)
            calls.append("started")

    def stop(agent):
        calls.append(f"stopped {agent.host}")
        if agent.host == "gpu001":
            go_on.set()

    def interrupt():
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        two.outcomes(["gpu000", "gpu001"], start)
    two.outcomes(["gpu000", "gpu001"], stop)
    assert calls == ["stopped gpu001", "started", "stopped gpu000"]
