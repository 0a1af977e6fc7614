"""The table of `status`; on a narrow terminal it leaves out columns, and never cuts names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tfdeploy.commands.status import RunStatus, TaskStatus
from tfdeploy.output.status_output import (
    OPTIONAL,
    hidden_columns,
    print_status,
    print_status_so_far,
)
from tfdeploy.output.status_table import COLUMNS, GAP, fitting_columns

from .samples import RUN_ID, make_report, make_run

TYPICAL = [dict(zip(COLUMNS, cells, strict=True)) for cells in (
    ("ps:0", "cpu-01", "2222", "-", "12345", "READY", "1h 02m", "0", "READY", "unknown", ""),
    ("worker:0", "gpu-01", "2222", "0,1", "12346", "READY", "1h 02m", "0", "READY",
     "step 12345, 3s ago", ""),
    ("worker:1", "gpu-02", "2222", "0,1", "23456", "BACKOFF", "2s", "3", "-", "-",
     "exit 1, again in 4.0 s"),
)]  # fmt: skip


def status_of(*reports):
    """Return the status of the first tasks of the sample run; None: no report."""
    run = make_run()
    tasks = zip(run.plan.placements, reports, strict=False)
    return RunStatus(run, tuple(TaskStatus(*task) for task in tasks), ())


# The table


def test_status_shows_every_task_also_without_a_report(printed):
    failed = make_report(state="FAILED", health="-", reason="killed by SIGKILL \x1b[1m", restarts=2)
    status = status_of(None, failed)
    lines = printed(lambda console: print_status(console, status)).splitlines()
    assert lines[0] == f"run {RUN_ID}  release f00d  network guarded"
    assert lines[1].split() == [
        "TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH",
        "TRAINING", "REASON",
    ]  # fmt: skip
    assert lines[2].split() == ["ps:0", "p", "2222", "-", "-", "UNKNOWN", *"-----"]
    assert lines[3].split(maxsplit=11) == [
        "worker:0", "w", "2222", "0,1", "7", "FAILED", "1m", "15s", "2", "-", "-",
        r"killed by SIGKILL \x1b[1m",
    ]  # fmt: skip


def test_hosts_that_a_resume_left_out_are_named(printed):
    whole = status_of(make_report(), make_report())
    status = replace(whole, run=replace(whole.run, left_out=("x1", "x2")))
    *_, note, hint = printed(lambda console: print_status(console, status)).splitlines()
    assert note == "left out: x1, x2; tasks of an earlier start may still run there"
    assert hint == f"  tfdeploy stop {whole.run.flags} ends them, and the run"


def test_rows_that_were_shown_while_others_were_waited_for_are_not_repeated(printed):
    whole = status_of(make_report(), make_report())
    first = RunStatus(whole.run, whole.tasks[1:], ())

    def show(console):
        print_status_so_far(console, first, ["p"])
        print_status(console, whole)

    lines = printed(show).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "TASK", "worker:0", "TASK", "ps:0"]


def test_ports_that_the_guard_does_not_cover_are_shown(printed):
    exposed = "udp port 9 of pid 7 (a\nb)"
    status = status_of(None, make_report(exposed=exposed))
    lines = printed(lambda console: print_status(console, status)).splitlines()
    assert lines[-1] == (
        r"worker:0: the guard does not cover udp port 9 of pid 7 (a\nb): everybody can connect"
    )


def test_a_value_from_a_host_cannot_look_like_a_row_of_its_own(printed):
    forged = "exit 1\nps:0  p  2222  -  7  READY"
    status = status_of(None, make_report(state="FAILED\nREADY", reason=forged))
    lines = printed(lambda console: print_status(console, status)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["ps:0", "worker:0"]


def test_a_long_cell_is_not_cut(printed):
    status = status_of(make_report(task="ps:0", reason="x" * 200))
    assert "x" * 200 in printed(lambda console: print_status(console, status))


@pytest.mark.parametrize("width", [60, 80])
def test_status_fits_a_narrow_terminal_and_names_the_hidden_columns(printed, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    ready = make_report(task="ps:0", step=12345, step_age_s=3.0)
    failed = make_report(state="FAILED", health="-", reason="killed by SIGKILL", restarts=2)
    text = printed(lambda console: print_status(console, status_of(ready, failed)))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert all(len(line) <= width for line in lines), text
    assert lines[1].split()[:2] == ["TASK", "HOST"]
    assert lines[4] == "worker:0: killed by SIGKILL"
    assert lines[5].startswith("hidden: PORT")
    assert lines[5].endswith(" (--json has all)")


LONG = "exit 1: ValueError: the model that was restored expects" + " images with 4 channels" * 6


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_reason_is_below_the_table_in_lines_of_whole_words(printed, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    reports = [make_report(task=task, state="FAILED", reason=LONG) for task in ("ps:0", "worker:0")]
    text = printed(lambda console: print_status(console, status_of(*reports)))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert all(len(line) <= width for line in lines), text
    begin = next(n for n, line in enumerate(lines) if line.startswith("ps:0, worker:0: exit 1"))
    assert " ".join(" ".join(lines[begin:]).split()).startswith(f"ps:0, worker:0: {LONG}")


def test_a_pipe_gets_one_line_for_each_task_and_no_spaces_behind_it(printed):
    reports = [make_report(task="ps:0", reason=LONG), make_report(reason="")]
    text = printed(lambda console: print_status(console, status_of(*reports)))
    *_, ps, worker = text.splitlines()
    assert LONG in ps
    assert len(worker) < len(LONG)


# Columns


def test_without_a_terminal_every_column_stays():
    assert fitting_columns(COLUMNS, OPTIONAL, TYPICAL, None) == [*COLUMNS]


@pytest.mark.parametrize(
    ("width", "hidden"),
    [
        (200, []),
        (100, ["REASON"]),
        (80, ["REASON", "PORT", "PID"]),
        (60, ["REASON", "PORT", "PID", "RESTARTS", "SINCE"]),
        (20, list(OPTIONAL)),
        (5, list(OPTIONAL)),
    ],
)
def test_columns_are_left_out_in_order_until_the_others_fit(width, hidden):
    columns = fitting_columns(COLUMNS, OPTIONAL, TYPICAL, width)
    assert sorted(set(COLUMNS) - set(columns)) == sorted(hidden)
    assert hidden_columns(TYPICAL, columns) == [name for name in COLUMNS if name in hidden]


def test_rows_are_at_most_as_wide_as_the_terminal():
    for width in range(20, 140):
        columns = fitting_columns(COLUMNS, OPTIONAL, TYPICAL, width)
        widths = [max(len(name), *(len(row[name]) for row in TYPICAL)) for name in columns]
        assert sum(widths) + GAP * (len(columns) - 1) <= width


def test_columns_without_values_are_left_out_first_and_not_named():
    rows = [{**row, "GPUS": "-", "RESTARTS": "0", "REASON": ""} for row in TYPICAL[:2]]
    columns = fitting_columns(COLUMNS, OPTIONAL, rows, 75)
    assert set(COLUMNS) - set(columns) == {"GPUS", "RESTARTS", "REASON"}
    assert hidden_columns(rows, columns) == []
