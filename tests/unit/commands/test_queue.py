"""How the queues of all hosts become one list, and how it is printed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.builders import make_run

from tfdeploy.commands import queue, start
from tfdeploy.errors import HostError
from tfdeploy.output.console import Console
from tfdeploy.output.hosts_output import print_queue
from tfdeploy.shared.protocol.preflight import FreePorts
from tfdeploy.shared.protocol.reports import HostQueue, QueuedRun
from tfdeploy.shared.records import HIGH, NORMAL

FIRST, SECOND = "20260101-101500-aaaa", "20260101-101500-bbbb"


def run(
    name, user="alice", priority=NORMAL, submitted=1, age_s=60.0, reason="comes next", project="p"
):
    return QueuedRun(project, name, user, priority, submitted, age_s, reason)


class Hosts:
    """What stands for a fleet: its hosts answer with these queues."""

    def __init__(self, **answers):
        self.agents = answers

    def outcomes(self, names, ask):
        return {
            name: each if isinstance(each, Exception) else HostQueue(each)
            for name, each in self.agents.items()
        }


def listed(**answers):
    return queue.list_queue(Hosts(**answers)).waiting


def test_runs_are_in_the_order_of_all_hosts_whatever_the_clocks_and_ages_say():
    a = [run(FIRST, age_s=1.0), run(SECOND, age_s=3600.0)]
    b = [
        run("urgent", priority=HIGH, submitted=9),
        run(SECOND, age_s=None),
        run("late", submitted=2),
    ]
    assert [each.run for each in listed(a=a, b=b)] == ["urgent", FIRST, SECOND, "late"]


def test_a_run_is_one_row_with_a_reason_for_each_host():
    [one] = listed(a=[run(FIRST, project="", age_s=None)], b=[run(FIRST, reason="x")])
    assert (one.project, one.age_s) == ("p", 60.0)
    assert one.hosts == {"a": "comes next", "b": "x"}


def test_a_stranger_who_uses_the_name_of_a_run_has_a_row_of_their_own():
    found = listed(a=[run(FIRST, "mallory", priority=HIGH), run(FIRST)])
    assert [(each.user, each.priority) for each in found] == [("mallory", HIGH), ("alice", NORMAL)]


@pytest.fixture
def printed(capsys):
    def printed(**answers):
        print_queue(Console(), queue.list_queue(Hosts(**answers)))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return printed


def test_a_queue_fits_eighty_columns(printed):
    reason = f"number 10 for GPU 3, behind alice's run {FIRST}"
    lines = printed(**{f"gpu-{n:02}": [run(SECOND, reason=reason)] for n in (1, 2, 3, 7)})
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == [f"{SECOND} waits:", f"  gpu-[01-03,07]: {reason}"]


def test_what_hosts_hide_is_a_dash(printed):
    row = printed(a=[run(FIRST, user="", project="", age_s=None)])[1]
    assert row.split() == [FIRST, "-", "-", "normal", "-", "a"]


def test_control_characters_of_a_host_are_escaped(printed):
    assert "\x1b" not in "".join(printed(a=[run(FIRST, reason="\x1b[31m\r")]))


def test_a_queue_of_which_a_host_says_nothing_is_not_empty(printed):
    assert printed(a=HostError("a", "no answer")) == ["no run waits on the hosts that answer"]
    assert printed(a=[]) == ["no run waits"]


@pytest.mark.parametrize("ports", ["auto", [2222, 2223, 2224]])
def test_clocks_of_controllers_do_not_matter(tmp_path, monkeypatch, ports):
    hosts = "[hosts.a]\nworkers = 2\nports = [2222, 2223, 2224]"
    run = replace(make_run(tmp_path, hosts=hosts), auto_ports=("a",) if ports == "auto" else ())
    agent = SimpleNamespace(ask=lambda request: FreePorts([2224], 1000.5))
    fleet = SimpleNamespace(agents={"a": agent})
    for clock in (1000.0, 4600.0):
        monkeypatch.setattr("time.time", lambda clock=clock: clock)
        assert start._submit(fleet, run)[1] == 1000
