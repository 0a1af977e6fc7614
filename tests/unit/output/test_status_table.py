"""Many tasks need few rows: tasks that are alike share one, and unhealthy tasks come first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import make_plan

from tfdeploy.commands.preflight.host_facts import HostFacts
from tfdeploy.commands.status import TaskStatus
from tfdeploy.commands.watching.history import STALLED_S
from tfdeploy.output import status_table
from tfdeploy.shared.protocol.preflight import ImportFacts
from tfdeploy.shared.records import LogProgress

from .samples import make_report

SILENT = {"step_age_s": STALLED_S + 1, "age_s": STALLED_S + 1}

COUNT = 100
PLACEMENTS = make_plan(
    "[hosts.ps0]\nps = 1\n"
    + "\n".join(f"[hosts.gpu{n:03}]\nworkers = 1" for n in range(COUNT))
).placements  # fmt: skip


def report_of(placement, **changes):
    return make_report(task=str(placement.task), **changes)


def rows(changed=None, count=None):
    """Return the rows of the first `count` tasks. All are READY except for the `changed` fields by
    task; None: no report."""
    placements = PLACEMENTS[:count]
    changes = {str(p.task): {} for p in placements} | (changed or {})
    return status_table.rows([
        TaskStatus(p, None if changes[str(p.task)] is None
                   else report_of(p, pid=n, **changes[str(p.task)]))
        for n, p in enumerate(placements)
    ])  # fmt: skip


def column(table, name):
    return [row[name] for row in table]


# Tasks


def test_up_to_the_limit_each_task_has_a_row_in_the_order_of_the_plan():
    table = rows({"worker:3": {"state": "LOST"}}, status_table.MAX_TASKS)
    assert column(table, "TASK") == [str(p.task) for p in PLACEMENTS[: status_table.MAX_TASKS]]


def test_many_healthy_tasks_share_a_row_for_each_job():
    assert [tuple(row[name] for name in status_table.COLUMNS) for row in rows()] == [
        ("ps:0", "ps0", "2222", "-", "0", "READY", "1m 15s", "0", "READY", "unknown", ""),
        ("worker:[0-99]", "gpu[000-099]", "2222", "-", status_table.DIFFERENT, "READY", "1m 15s",
         "0", "READY", "unknown", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "LOST", "health": "-"},
        {"health": "FROZEN"},
        {"state": "BACKOFF", "reason": "exit 1"},
        {"step": 7, **SILENT},
        None,
    ],
)
def test_an_unhealthy_task_has_its_own_row_before_all_others(changes):
    table = rows({"worker:7": changes, "worker:50": changes})
    assert column(table, "TASK") == [
        "worker:7", "worker:50", "ps:0", "worker:[0-6,8-49,51-99]",
    ]  # fmt: skip
    state = changes.get("state", "READY") if changes else "UNKNOWN"
    assert column(table, "STATE")[0] == state


def test_many_tasks_that_are_unhealthy_in_the_same_way_share_a_row():
    lost = {f"worker:{n}": {"state": "LOST", "reason": "the host restarted"} for n in range(30)}
    table = rows(lost | {"worker:30": {"state": "LOST", "reason": "killed"}, "worker:31": None})
    assert column(table, "TASK") == [
        "worker:[0-29]", "worker:30", "worker:31", "ps:0", "worker:[32-99]",
    ]  # fmt: skip
    assert column(table, "REASON")[:2] == ["the host restarted", "killed"]


def test_every_task_is_in_exactly_one_row():
    failed = {f"worker:{n}": {"state": "FAILED"} for n in range(0, COUNT, 7)}
    names = [name for text in column(rows(failed), "TASK") for name in expand(text)]
    assert sorted(names) == sorted(str(p.task) for p in PLACEMENTS)


def expand(text):
    job, _, numbers = text.replace("[", "").replace("]", "").partition(":")
    for span in numbers.split(","):
        first, _, last = span.partition("-")
        yield from (f"{job}:{n}" for n in range(int(first), int(last or first) + 1))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "unknown"),
        ({"quiet_s": 65.0}, "unknown, log 1m 05s ago"),
        ({"step": 7, "step_age_s": 3.0, "quiet_s": 1.0}, "step 7, 3s ago"),
        (
            {"step": 7, "step_age_s": 3.0, "log_progress": LogProgress(loss="0.5")},
            "step 7, 3s ago, loss 0.5",
        ),
        (
            {"quiet_s": 1.0, "log_progress": LogProgress(3, 10, 20, 157, 9, "0.1200000178813934")},
            "epoch 3/10, batch 20/157, log 1s ago, loss 0.12",
        ),
        (
            {"quiet_s": 1.0, "log_progress": LogProgress(1, 2, 20)},
            "epoch 1/2, batch 20/?, log 1s ago",
        ),
        ({"quiet_s": 1.0, "log_progress": LogProgress(2)}, "epoch 2, log 1s ago"),
        ({"quiet_s": 1.0, "log_progress": LogProgress(step=9)}, "step 9, log 1s ago"),
        ({"step": 0, **SILENT}, "stalled at step 0, 2m 01s ago"),
        ({"step": 0, **SILENT, "quiet_s": 999.0}, "stalled at step 0, 2m 01s ago"),
        ({"step": 0, **SILENT, "quiet_s": 1.0}, "step 0, 2m 01s ago"),  # its log grows
        (
            {"step": 0, **SILENT, "quiet_s": 1.0, "log_progress": LogProgress(waits_for=["ps:0"])},
            "stalled at step 0, 2m 01s ago",
        ),
        ({"step": 9, **SILENT, "age_s": 1.0}, "step 9, 2m 01s ago"),  # it was just resumed
        ({"state": "RUNNING", "quiet_s": 1.0}, "unknown, log 1s ago"),
        ({"state": "BACKOFF", "quiet_s": 1.0}, "-"),
        ({"state": "LOST", "step": 7, "step_age_s": 3.0}, "-"),
    ],
)
def test_training_shows_the_last_step_or_else_the_age_of_the_log(changes, text):
    assert status_table.training_text(make_report(**changes)) == text


# Hosts


def test_a_host_whose_environment_is_not_built_has_no_version_and_keeps_its_other_cells():
    module = ImportFacts(version="2.21.0")
    built = HostFacts("a", "3.11.7", {"tensorflow": module}, {0: "T4"}, "3.2.7", "", 10**9, 0.0,
                      (), ())  # fmt: skip
    unbuilt = replace(built, host="b", imports={}, unbuilt=True)
    assert status_table.host_columns(["tensorflow"]) == (
        "HOSTS", "PYTHON", "TENSORFLOW", "GPUS", "RSYNC", "FREE",
    )  # fmt: skip
    others = {"PYTHON": "3.11.7", "GPUS": "0 T4", "RSYNC": "3.2.7", "FREE": "1.0 GB"}
    assert status_table.host_rows([built, unbuilt]) == [
        {"HOSTS": "a", "TENSORFLOW": "2.21.0", **others}, {"HOSTS": "b", **others},
    ]  # fmt: skip


# Changes and ends


def test_reports_at_the_same_time_share_a_row_for_each_state():
    workers = PLACEMENTS[1:11]
    reports = [(p.host, report_of(p, state=s)) for s in ("RUNNING", "READY") for p in workers]
    failed = report_of(PLACEMENTS[0], state="FAILED", reason="exit 1")
    assert status_table.change_rows([*reports, (PLACEMENTS[0].host, failed)]) == [
        ("READY", "worker:[0-9]", "gpu[000-009]", "", ""),
        ("FAILED", "ps:0", "ps0", "7", "exit 1"),
    ]


def test_many_ended_tasks_share_a_row_for_each_state():
    states = {str(p.task): "STOPPED" for p in PLACEMENTS} | {"worker:4": "SUCCEEDED"}
    assert status_table.end_rows(states) == [
        ("STOPPED", "ps:0, worker:[0-3,5-99]"), ("SUCCEEDED", "worker:4"),
    ]  # fmt: skip
    assert status_table.end_rows({"ps:0": "STOPPED", "worker:0": "STOPPED"}) == [
        ("STOPPED", "ps:0"), ("STOPPED", "worker:0"),
    ]  # fmt: skip
