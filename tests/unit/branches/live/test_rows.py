"""Which rows a run has, at any number of hosts and any width."""

from __future__ import annotations

import pytest

from tfdeploy.branches.live.rows import COLUMNS, layout, note_of, rows, state_text
from tfdeploy.errors import Unreachable
from tfdeploy.shared.records import LogProgress
from unit.branches.live.samples import GB, gpu, host_use, keras, sample, task_use, watched_run
from unit.output.samples import make_report

FLEET = '[hosts.p]\nps = 1\n[hosts."w[001-200]"]\ngpus = 1\nworkers = 1'
SILENT = {"step": 1, "step_age_s": 500.0, "age_s": 500.0}


def cells(row, *names):
    return tuple(row.cells[COLUMNS.index(name)] for name in names)


def two_hosts():
    watched = watched_run()
    for at, cpu_s in ((0.0, 0.0), (2.0, 3.0)):
        use = host_use(at, busy_s=at, gpus=[gpu(0, 40.0), gpu(1, 60.0)], received=int(at * 1000))
        tasks = [task_use("worker:0", cpu_s), task_use("worker:1", restarts=2)]
        watched.take("w", sample(*tasks, host=use), 0.0)
        watched.take("p", sample(task_use("ps:0", cpu_s), host=host_use(at)), 0.0)
    return watched


def fleet(**bad):
    """200 hosts with one READY worker each; `bad` are reports of some tasks, by their number."""
    watched = watched_run(FLEET)
    watched.take("p", sample(task_use("ps:0")), 0.0)
    for number in range(200):
        changes = bad.get(f"worker_{number}", {})
        host = host_use(gpus=[gpu(0, 30.0)])
        use = sample(task_use(f"worker:{number}", **changes), host=host)
        watched.take(f"w{number + 1:03}", use, 0.0)
    return watched


def test_a_host_has_a_row_before_those_of_its_tasks():
    found = rows(two_hosts(), 0.0, 20)
    assert [cells(row, "HOST", "TASK") for row in found] == [
        ("p", "ps:0"), ("w", ""), ("", "worker:0"), ("", "worker:1"),
    ]  # fmt: skip
    assert [row.tasks for row in found] == [("ps:0",), (), ("worker:0",), ("worker:1",)]


def test_rows_show_what_tasks_and_hosts_use():
    _, host, chief, other = rows(two_hosts(), 0.0, 20)
    assert cells(host, "CPU", "MEMORY", "GPU", "GPU MEMORY", "NETWORK") == (
        "25% of 4", "3.0/16.0 GB", "50%", "18.6/149.0 GiB", "↓1.0 kB/s ↑0 B/s",
    )  # fmt: skip
    assert cells(chief, "STATE", "SINCE", "RESTARTS") == ("READY", "1m 15s", "0")
    assert cells(chief, "CPU", "MEMORY", "GPU", "GPU MEMORY") == (
        "150%", "1.0 GB", "40%", "9.3/74.5 GiB",
    )  # fmt: skip
    assert cells(other, "RESTARTS", "GPU") == ("2", "60%")


def test_a_task_without_a_report_is_waited_for():
    [row, *_] = rows(watched_run(), 0.0, 20)
    assert cells(row, "HOST", "TASK", "STATE") == ("p", "ps:0", "…")


def test_a_host_that_is_away_says_since_when_and_why_while_others_go_on():
    watched = two_hosts()
    watched.take("w", Unreachable("w", "no answer within 30 s\nmore"), 100.0)
    ps, away, *tasks = rows(watched, 165.0, 20)
    assert cells(away, "HOST", "STATE", "SINCE") == ("w", "AWAY", "1m 05s")
    assert (away.note, away.is_bad) == (r"no answer within 30 s\nmore", True)
    assert (cells(ps, "STATE"), ps.is_old) == (("READY",), False)
    assert [task.is_old for task in tasks] == [True, True]
    assert cells(tasks[0], "STATE", "SINCE") == ("READY", "2m 55s")  # as the last report says


def test_a_task_that_has_ended_uses_nothing():
    watched = two_hosts()
    tasks = [task_use("worker:0", state="FAILED", reason="exit 1"), task_use("worker:1")]
    watched.take("w", sample(*tasks, host=host_use(4.0)), 0.0)
    row = rows(watched, 0.0, 20)[2]
    assert cells(row, "STATE", "CPU", "MEMORY") == ("FAILED", "", "")
    assert (row.note, row.is_bad) == ("exit 1", True)


@pytest.mark.parametrize("limit", [3, 5, 12])
def test_200_hosts_fold_into_few_rows(limit):
    found = rows(fleet(), 0.0, limit)
    assert [cells(row, "HOST", "TASK", "STATE", "GPU", "MEMORY") for row in found] == [
        ("p", "ps:0", "READY", "", "1.0 GB"),
        ("w[001-200]", "worker:[0-199]", "READY", "30%", "200.0 GB"),
    ]


def test_bad_tasks_come_first_when_tasks_are_folded():
    failed = {"state": "FAILED", "reason": "exit 1"}
    found = rows(fleet(worker_7=failed, worker_9=failed), 0.0, 12)
    assert cells(found[0], "HOST", "TASK", "STATE") == (
        "w008, w010",
        "worker:7, worker:9",
        "FAILED",
    )
    assert found[0].note == "exit 1"
    assert len(found) == 3


def test_hosts_that_are_away_for_the_same_reason_share_a_row():
    watched = fleet()
    for number in range(1, 31):
        watched.take(f"w{number:03}", Unreachable(f"w{number:03}", "no route"), 5.0)
    away = rows(watched, 10.0, 12)[0]
    assert cells(away, "HOST", "STATE") == ("w[001-030]", "AWAY")
    assert away.note == "no route"


def test_more_kinds_of_tasks_than_lines_are_counted():
    bad = {f"worker_{n}": {"state": "FAILED", "reason": f"exit {n}"} for n in range(50)}
    found = rows(fleet(**bad), 0.0, 8)
    assert sum(2 if row.note else 1 for row in found) <= 8
    assert found[-1].cells[0] == f"+ {52 - len(found) + 1} rows"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "READY"),
        ({"health": "FROZEN"}, "FROZEN"),
        (SILENT, "STALLED"),
        ({**SILENT, "quiet_s": 1.0, "log_progress": keras(1, 20)}, "READY"),
        ({**SILENT, "quiet_s": 1.0, "log_progress": LogProgress(waits_for=["ps:0"])}, "STALLED"),
        ({"state": "BACKOFF", "health": "-"}, "BACKOFF"),
        ({"health": "x\x1b[2Jy"}, "x\\x1b[2Jy"),
    ],
)
def test_the_state_says_what_contradicts_ready(changes, text):
    assert state_text(make_report(**changes)) == text


def test_a_note_names_the_tasks_that_tensorflow_waits_for():
    said = LogProgress(waits_for=["ps:0", "worker:\x1b[2J"])
    assert note_of(make_report(log_progress=said)) == ("TensorFlow waits for ps:0, worker:\\x1b[2J")


def lines(watched, width, limit=20):
    return ["  ".join(line).rstrip() for line in layout(rows(watched, 0.0, limit), width)]


@pytest.mark.parametrize("width", [40, 60, 78, 118, 200])
def test_rows_fit_the_width(width):
    assert max(map(len, lines(two_hosts(), width))) <= width


def test_columns_without_a_value_are_left_out_first():
    watched = watched_run()
    watched.take("p", sample(task_use("ps:0")), 0.0)
    assert lines(watched, 200)[0].split() == ["HOST", "TASK", "STATE", "SINCE", "MEMORY"]


def test_a_note_that_the_next_row_has_too_is_shown_once():
    watched = two_hosts()
    stopped = {"state": "STOPPED", "reason": "on request"}
    tasks = [task_use("worker:0", **stopped), task_use("worker:1", **stopped)]
    watched.take("w", sample(*tasks, host=host_use(4.0)), 0.0)
    assert [row.note for row in rows(watched, 0.0, 20)] == ["", "", "", "on request"]


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [(3 * GB, 16 * GB, "3.0/16.0 GB"), (130 * GB, 1000 * GB, "130.0 GB/1.0 TB")],
)
def test_a_part_has_its_own_unit_if_it_differs(used, total, text):
    watched = watched_run()
    host = host_use(used_bytes=used, total_bytes=total)
    watched.take("w", sample(task_use("worker:0"), host=host), 0.0)
    assert cells(rows(watched, 0.0, 20)[1], "MEMORY") == (text,)


def test_the_widest_terminal_shows_all_columns():
    assert "  ".join(COLUMNS).split() == lines(two_hosts(), 200)[0].split()
