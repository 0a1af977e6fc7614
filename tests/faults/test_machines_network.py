"""A network that fails and returns, or is slow: training continues and nothing restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from support.machines import MACHINES
from support.sites import Site, training

from faults import table

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

# After this time the connections that follow the run have failed and must be opened again.
CUT_S = 45.0
NO_NETWORK = "no network for 45 s"
SSH = ("-p", "tcp", "--dport", "22")
HOSTS = {"ps0": {"ps": 1}, "ps1": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
CHIEF = ("worker:0", "chief")
OTHER = ("worker:1", "worker1")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One training for all faults of this module, one after the other."""
    folder = tmp_path_factory.mktemp("network")
    training_table = {"orphan_timeout_s": 600}
    flags = ("--pace=0.3",)  # as often as it logs a step
    with training(folder, "train_async.py", *flags, hosts=HOSTS, training=training_table) as site:
        yield site.start()


@pytest.fixture
def running(site) -> Iterator[Site]:
    """The training, whose workers both make steps before the fault and after it, in the same
    processes."""
    pids = _pids(site)
    _wait_for_steps(site)
    yield site
    _restore(HOSTS)
    assert _pids(site) == pids
    assert set(site.states().values()) == {"READY"}


def _wait_for_steps(site):
    for worker in (CHIEF, OTHER):
        site.wait_for_step(*worker, beyond=site.step(*worker))


def _pids(site):
    return {task: (fields["pid"], fields["restarts"]) for task, fields in site.tasks().items()}


def _cut(hosts, *match):
    for host in hosts:
        MACHINES[host].cut_network(*match)


def _restore(hosts):
    for host in hosts:
        MACHINES[host].restore_network()


def _lines_of_chief(output):
    return [line.removeprefix("worker:0@chief | ") for line in output if "worker:0@" in line]


def test_hosts_that_were_cut_off_continue_nothing_restarts_and_no_line_is_lost(running):
    """First a worker's host, without which the others never stop; then half of the hosts, and the
    controller from all of them, while it follows the chief's log."""
    before = running.step(*CHIEF)
    following = running.start_command("logs", "-f", "worker:0")
    following.wait_for_output(f"step {running.wait_for_step(*CHIEF, beyond=before)} ")
    _cut(["worker1"])
    cut_at, before = time.monotonic(), running.step(*CHIEF)
    assert "worker1" in running.unreachable()
    detected_s = time.monotonic() - cut_at
    running.wait_for_step(*CHIEF, beyond=before)
    _cut(["ps1"])
    _cut(["ps0", "chief"], *SSH)
    time.sleep(CUT_S)
    step, step_of_other = running.step(*CHIEF), running.step(*OTHER)
    _restore(HOSTS)
    restored_at = time.monotonic()
    running.wait_for_step(*CHIEF, beyond=step)
    recovered_s = time.monotonic() - restored_at
    running.wait_for_step(*OTHER, beyond=step_of_other)
    other_s = time.monotonic() - restored_at
    following.wait_for_output(f"step {step} ")
    followed_s = time.monotonic() - restored_at
    following.kill()
    printed, written = _lines_of_chief(following.output.splitlines()[:-1]), running.log(*CHIEF)
    assert printed == written[: len(printed)]
    assert "until it answers; the run continues" in following.output
    startup_s = running.startup_s
    table.record(f"14 {NO_NETWORK}: the controller", None, followed_s, 0, startup_s)
    table.record(f"15 {NO_NETWORK}: a worker's host", detected_s, other_s, 0, startup_s)
    fault = f"39 {NO_NETWORK}: half of the hosts (async, 0 restarts)"
    table.record(fault, None, recovered_s, 0, startup_s)


def test_a_slow_network_slows_training_and_ends_no_task(running):
    for machine in MACHINES.values():
        machine.limit_bandwidth("1mbit")
    _wait_for_steps(running)
    assert set(running.states().values()) == {"READY"}
    table.record("- a network of 1 Mbit/s (async, 0 restarts)", None, None, 0)
