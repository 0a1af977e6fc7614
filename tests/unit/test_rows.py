"""Many tasks in few rows: those that are alike in one, and whoever is not well before all."""

from __future__ import annotations

import pytest

from tfdeploy import rows, words
from tfdeploy.agent.records import TaskReport
from tfdeploy.steps.status import TaskStatus
from unit.made import plan

COUNT = 100
PLACED = plan(
    "[hosts.ps0]\nps = 1\n"
    + "\n".join(f"[hosts.gpu{n:03}]\nworkers = 1" for n in range(COUNT))
).placements  # fmt: skip


def report(placement, **changes):
    fields = {
        "task": str(placement.task), "state": "READY", "age_s": 75.0, "pid": 7, "exit": None,
        "restarts": 0, "reason": "", "health": "READY",
    }  # fmt: skip
    return TaskReport(**{**fields, **changes})


def told(odd=None, count=None):
    """The rows of the first tasks, all READY but for the changes of `odd`; None: no report."""
    placements = PLACED[:count]
    changed = {str(p.task): {} for p in placements} | (odd or {})
    return rows.rows([
        TaskStatus(p, None if changed[str(p.task)] is None
                   else report(p, pid=n, **changed[str(p.task)]))
        for n, p in enumerate(placements)
    ])  # fmt: skip


def column(found, name):
    return [row[rows.COLUMNS.index(name)] for row in found]


def test_as_many_as_a_screen_holds_have_a_row_each_in_the_order_of_the_plan():
    found = told({"worker:3": {"state": "LOST"}}, rows.MANY)
    assert column(found, "TASK") == [str(p.task) for p in PLACED[: rows.MANY]]


def test_many_that_are_well_share_a_row_for_each_job():
    assert told() == [
        ("ps:0", "ps0", "2222", "-", "0", "READY", "1m 15s", "0", "READY", "unknown", ""),
        ("worker:[0-99]", "gpu[000-099]", "2222", "-", rows.DIFFERENT, "READY", "1m 15s", "0",
         "READY", "unknown", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [
        {"state": "LOST", "health": "-"},
        {"health": "FROZEN"},
        {"state": "BACKOFF", "reason": "exit 1"},
        {"step": 7, "step_age_s": words.STALLED_S + 1},
        None,
    ],
)
def test_whoever_is_not_well_stands_alone_and_first(odd):
    found = told({"worker:7": odd, "worker:50": odd})
    assert column(found, "TASK") == [
        "worker:7", "worker:50", "ps:0", "worker:[0-6,8-49,51-99]",
    ]  # fmt: skip
    assert column(found, "STATE")[0] == (odd.get("state", "READY") if odd else "UNKNOWN")


def test_very_many_that_are_not_well_in_the_same_way_share_a_row():
    lost = {f"worker:{n}": {"state": "LOST", "reason": "the host restarted"} for n in range(30)}
    found = told(lost | {"worker:30": {"state": "LOST", "reason": "killed"}, "worker:31": None})
    assert column(found, "TASK") == [
        "worker:[0-29]", "worker:30", "worker:31", "ps:0", "worker:[32-99]",
    ]  # fmt: skip
    assert column(found, "REASON")[:2] == ["the host restarted", "killed"]


def test_every_task_is_in_one_row():
    odd = {f"worker:{n}": {"state": "FAILED"} for n in range(0, COUNT, 7)}
    names = [name for row in column(told(odd), "TASK") for name in unfolded(row)]
    assert sorted(names) == sorted(str(p.task) for p in PLACED)


def unfolded(text):
    job, _, numbers = text.replace("[", "").replace("]", "").partition(":")
    for span in numbers.split(","):
        first, _, last = span.partition("-")
        yield from (f"{job}:{n}" for n in range(int(first), int(last or first) + 1))


# Changes and ends


def test_changes_at_the_same_time_are_told_by_what_they_come_to():
    workers = PLACED[1:11]
    reports = [(p.host, report(p, state=s)) for s in ("RUNNING", "READY") for p in workers]
    failed = report(PLACED[0], state="FAILED", reason="exit 1")
    assert rows.changes([*reports, (PLACED[0].host, failed)]) == [
        ("READY", "worker:[0-9]", "gpu[000-009]", "", ""),
        ("FAILED", "ps:0", "ps0", "7", "exit 1"),
    ]


def test_the_ends_of_many_tasks_are_told_by_their_states():
    states = {str(p.task): "STOPPED" for p in PLACED} | {"worker:4": "SUCCEEDED"}
    assert rows.ends(states) == [
        ("STOPPED", "ps:0, worker:[0-3,5-99]"), ("SUCCEEDED", "worker:4"),
    ]  # fmt: skip
    assert rows.ends({"ps:0": "STOPPED", "worker:0": "STOPPED"}) == [
        ("STOPPED", "ps:0"), ("STOPPED", "worker:0"),
    ]  # fmt: skip
