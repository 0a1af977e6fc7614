"""A network that goes away and comes back, or crawls: training goes on, nothing restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from faults import table
from faults.machines import MACHINES
from faults.sites import Site, training

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CUT_S = 30.0
# After this the connections that follow were given up, and have to be made again.
FOLLOWED_S = 45.0
AWAY = "no network for 30 s"
SSH = ("-p", "tcp", "--dport", "22")
HOSTS = {"ps0": {"ps": 1}, "ps1": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
CHIEF = ("worker:0", "chief")
OTHER = ("worker:1", "worker1")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One training, to which these faults happen one after the other."""
    folder = tmp_path_factory.mktemp("network")
    flags = ("--save_steps=200", "--pace=0.05")
    patient = {"orphan_timeout_s": 600}
    with training(folder, "train_async.py", *flags, hosts=HOSTS, training=patient) as site:
        yield site.started()


@pytest.fixture
def trains(site) -> Iterator[Site]:
    """Both workers do, before the fault and after it, in the processes that they began with."""
    pids = _pids(site)
    _both_go_on(site)
    yield site
    _heal(HOSTS)
    assert _pids(site) == pids
    assert set(site.states().values()) == {"READY"}


def _both_go_on(site):
    for worker in (CHIEF, OTHER):
        site.goes_on(*worker, beyond=site.step(*worker))


def _pids(site):
    return {task: (told["pid"], told["restarts"]) for task, told in site.tasks().items()}


def _cut(hosts, *match):
    for host in hosts:
        MACHINES[host].cut(*match)


def _heal(hosts):
    for host in hosts:
        MACHINES[host].heal()


def _cut_for(seconds, hosts, *match):
    """The moment of healing."""
    _cut(hosts, *match)
    time.sleep(seconds)
    _heal(hosts)
    return time.monotonic()


def _lines(shown):
    return [line.removeprefix("worker:0@chief | ") for line in shown if "worker:0@" in line]


def test_a_controller_without_network_loses_no_line_of_what_it_follows(trains):
    before = trains.step(*CHIEF)
    following = trains.begun("logs", "-f", "worker:0")
    following.says(f"step {trains.goes_on(*CHIEF, beyond=before)} ")
    healed = _cut_for(FOLLOWED_S, HOSTS, *SSH)
    during = trains.step(*CHIEF)
    following.says(f"step {during} ")
    recovered_s = time.monotonic() - healed
    following.kill()
    shown, written = _lines(following.said.splitlines()[:-1]), trains.log(*CHIEF)
    assert shown == written[: len(shown)]
    assert "is asked again until it answers" in following.said
    table.record("14 no network for 45 s: the controller", None, recovered_s, 0, trains.startup_s)


def test_a_worker_that_was_cut_off_goes_on_and_the_others_never_stopped(trains):
    _cut(["worker1"])
    began, before = time.monotonic(), trains.step(*CHIEF)
    assert any(error.startswith("worker1: ") for error in trains.errors())
    detected_s = time.monotonic() - began
    trains.goes_on(*CHIEF, beyond=before)
    time.sleep(max(0.0, began + CUT_S - time.monotonic()))
    stood = trains.step(*OTHER)
    _heal(["worker1"])
    healed = time.monotonic()
    trains.goes_on(*OTHER, beyond=stood)
    recovered_s = time.monotonic() - healed
    table.record(f"15 {AWAY}: a worker's host", detected_s, recovered_s, 0, trains.startup_s)


def test_a_cut_of_half_of_the_hosts_restarts_nothing(trains):
    before = trains.step(*CHIEF)
    healed = _cut_for(CUT_S, ["ps1", "worker1"])
    stood = trains.step(*CHIEF)
    trains.goes_on(*CHIEF, beyond=max(before, stood))
    recovered_s = time.monotonic() - healed
    trains.goes_on(*OTHER, beyond=trains.step(*OTHER))
    table.record(
        f"39 {AWAY}: half of the hosts (async, 0 restarts)", None, recovered_s, 0, trains.startup_s
    )


def test_a_slow_network_slows_training_and_ends_nothing(trains):
    for machine in MACHINES.values():
        machine.slow("1mbit")
    _both_go_on(trains)
    assert set(trains.states().values()) == {"READY"}
    table.record("- a network of 1 Mbit/s (async, 0 restarts)", None, None, 0)
