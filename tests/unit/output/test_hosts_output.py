"""The table of `hosts`: what is free comes first, and who uses the rest."""

from __future__ import annotations

import pytest

from tfdeploy.commands.hosts import SeenHost, SeenHosts
from tfdeploy.commands.runs import ProjectRuns, RunSummary
from tfdeploy.errors import Unreachable
from tfdeploy.output import hosts_output
from tfdeploy.output.console import Console
from tfdeploy.output.hosts_output import print_hosts, print_runs
from tfdeploy.shared.protocol.reports import GpuState, GpuUser, HostState

GIB = 1 << 30
RUN = "20260101-000000-aaaa"
STRANGER = GpuUser("bob", 4242, "python3 train.py", 7300.0, 70 * GIB, "", "", "")


def task(index):
    return GpuUser("alice", 7, "", 90000.0, None, "digits", RUN, f"worker:{index}")


def gpu(index, *users, used=0, free=None):
    is_free = not users if free is None else free
    busy = 97.0 if used else 0.0
    return GpuState(index, "GPU-1", "H100", busy, used * GIB, 80 * GIB, is_free, [*users])


def host(name, *gpus, load=1.0, unseen=(), waiting=0):
    state = HostState(load, 32, 10 * GIB, 100 * GIB, 2 * 10**12, [*gpus], [*unseen], waiting)
    return SeenHost(name, state)


@pytest.fixture
def printed(capsys):
    def printed(*hosts, errors=()):
        print_hosts(Console(), SeenHosts(hosts, errors))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return printed


def test_a_row_has_what_is_free_and_who_uses_the_rest(printed):
    gpus = [gpu(0, task(0), used=70), gpu(1, task(1), used=70), gpu(2, STRANGER, used=70), gpu(3)]
    header, row = printed(host("gpu-01", *gpus, waiting=3))
    assert header.split() == ["HOST", "FREE", "WAIT", "LOAD", "MEM", "DISK", "GPUS", "IN", "USE"]
    assert row == (
        "gpu-01  1/4   3     1/32  10%  2.0 TB  "
        f"0,1 alice 1d 97% 140/160G digits {RUN} worker:0, worker:1; "
        "2 bob 2h 97% 70/80G python3 train.py"
    )


def test_what_is_not_seen_is_said(printed):
    hidden = GpuUser("", 4242, "", None, None, "", "", "")
    _, first, second, note = printed(
        host("a", gpu(0, used=60, free=False), unseen=["hidepid"]),
        host("b", gpu(0, hidden, used=60), unseen=["hidepid"]),
    )
    assert first.endswith("0 hidden 97% 60/80G")
    assert second.endswith("0 ? 97% 60/80G pid 4242")
    assert note == "a, b: hidepid"


def test_a_host_that_does_not_answer_has_its_reason(printed):
    row = printed(SeenHost("c", None), errors=[Unreachable("c", "no route")])[1]
    assert row.split() == ["c", "-", "-", "-", "-", "-", "no", "route"]


def test_hosts_are_sorted_by_what_is_free():
    hosts = [
        SeenHost("away", None),
        host("full", gpu(0, STRANGER)),
        host("busy", gpu(0), load=30.0),
        host("idle", gpu(0)),
        host("empty", gpu(0), gpu(1)),
    ]
    in_order = [each.host for each in sorted(hosts, key=lambda each: each.order)]
    assert in_order == ["empty", "idle", "busy", "full", "away"]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("0 alice digits; 1 bob", "0 alice digits; 1 bob"),
        ("0 alice 2h digits; 1 bob 3h train.py", "0 alice 2h…; 1 bob 3h t…"),
    ],
)
def test_a_long_cell_is_cut_such_that_all_users_are_named(text, cut):
    assert hosts_output._cut(text, 25) == cut


def test_what_is_not_collected_is_counted_with_the_command_that_fetches_it(capsys):
    def run(number, results, collected):
        counts = {"results": results, "results_collected": collected}
        tasks = {"worker:0": "SUCCEEDED"}
        name = f"20260101-00000{number}-aaaa"
        return RunSummary(name, "succeeded", 60.0, tasks, ("a",), 5, True, False, **counts)

    def lines(*runs):
        print_runs(Console(), ProjectRuns("digits", runs, {}, ()))
        header, *rows = capsys.readouterr().out.splitlines()
        column = header.index("COLLECTED")
        return [row[column:] for row in rows[: len(runs)]], rows[len(runs) :]

    cells, said = lines(run(3, 7, 4), run(2, 2, 2), run(1, 0, 0))
    assert cells == ["4 of 7", "2 of 2", "no results"]
    fetch = "  tfdeploy collect 20260101-000003-aaaa fetches what it can, and names the rest"
    what = "only on hosts: 3 results (checkpoints, outputs, event files) of"
    assert said == [f"{what} run 20260101-000003-aaaa", fetch]
    _, said = lines(run(3, 7, 4), run(2, 2, 1))
    several = what.replace("3", "4")
    assert said == [f"{several} 2 runs (the newest is 20260101-000003-aaaa)", fetch]
    assert lines(run(2, 2, 2))[1] == []
