"""Every character that a person sees: what comes from hosts is shown as it is, and does nothing."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy import console
from tfdeploy.agent.records import TaskReport
from tfdeploy.console import Console, duration, printable, size
from tfdeploy.errors import Unreachable
from tfdeploy.run import Run
from tfdeploy.steps.collect import Checkpoint, Collected
from tfdeploy.steps.status import RunStatus, TaskStatus
from unit.made import inventory, plan

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\ngpus = 2\nworkers = 1\ngpus_per_worker = 2"


@pytest.fixture
def shown(capsys):
    """What `show(console)` prints on standard output."""

    def show(act, **options):
        act(Console(**options))
        return capsys.readouterr().out

    return show


def report(**changes):
    fields = {
        "task": "worker:0", "state": "READY", "age_s": 75.0, "pid": 7, "exit": None, "restarts": 0,
        "reason": "", "health": "READY",
    }  # fmt: skip
    return TaskReport(**{**fields, **changes})


def run():
    return Run("20260101-000000-abcd", "f00d", "a9e", inventory(HOSTS), plan(HOSTS))


# Words


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain é 漢字 😀", "plain é 漢字 😀"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("a\rb\x08", r"a\rb\x08"),
        ("\u202eright to left", r"\u202eright to left"),
        ("a\nb\tc", "a\nb\tc"),
        ("caf\udce9", r"caf\udce9"),
        ("it's \\x1b", "it's \\x1b"),
    ],
)
def test_control_characters_are_made_visible(text, seen):
    assert printable(text) == seen


@given(st.text())
def test_nothing_printable_acts_on_a_terminal(text):
    assert all(char.isprintable() or char in "\n\t" for char in printable(text))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (15_234_567, "15.2 MB"),
        (2_000_000_000, "2.0 GB"),
        (7_000_000_000_000, "7000.0 GB"),
    ],
)
def test_sizes_are_told_in_the_unit_that_fits(count, text):
    assert size(count) == text


@given(st.integers(0, 10**12 - 10**8))
@example(999_999)
def test_sizes_have_three_digits_at_most(count):
    assert len(size(count).split()[0].split(".")[0]) <= 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (185, "3m 05s"), (3600, "1h 00m"), (7800, "2h 10m"),
     (86400, "1d 0h"), (356_400, "4d 3h")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


# Log lines


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("step 1 loss 0.5", "step 1 loss 0.5"),
        ("[red]not red[/red] [/] [x", "[red]not red[/red] [/] [x"),
        ("\\[red] \\", "\\[red] \\"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("train.py:100: UserWarning :fire:", "train.py:100: UserWarning :fire:"),
        ("", ""),
        (" 10%\r 50%\r100%", "100%"),
        ("done\r", "done"),
        ("http://h:6006/#a  'x' 1.5", "http://h:6006/#a  'x' 1.5"),
        ("x" * 300, "x" * 300),
    ],
)
def test_a_log_line_is_printed_as_it_is(shown, line, seen):
    assert shown(lambda c: c.lines("worker:0", "gpu", [line])) == f"worker:0@gpu | {seen}\n"


def test_each_line_stands_behind_its_task_and_host(shown):
    out = shown(lambda c: c.lines("ps:1", "h", ["a", "b"]))
    assert out == "ps:1@h | a\nps:1@h | b\n"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_no_log_line_breaks_the_printing(line):
    with redirect_stdout(StringIO()) as output:
        Console().lines("ps:0", "h", [line])
    assert output.getvalue() == f"ps:0@h | {printable(line)}\n"


# Reports


def test_a_change_of_state_is_one_line(shown):
    out = shown(lambda c: c.report("gpu-01", report(state="RUNNING", reason="[b]")))
    assert out == "RUNNING   worker:0   gpu-01  pid 7  [b]\n"


def test_a_state_is_told_once_however_often_it_is_reported(shown):
    def tell(console):
        for state in ("RUNNING", "RUNNING", "READY", "READY"):
            console.report("gpu", report(state=state))
        console.report("gpu", report(state="READY", pid=8))

    assert [line.split()[0] for line in shown(tell).splitlines()] == ["RUNNING", "READY", "READY"]


def test_a_started_run_is_counted(shown):
    out = shown(lambda c: c.started(run()))
    assert out == "run 20260101-000000-abcd is READY: 2 tasks on 2 hosts\n"


def test_status_shows_every_task_and_who_is_unknown(shown):
    placed = run().plan.placements
    failed = report(state="FAILED", health="-", reason="killed by SIGKILL \x1b[1m", restarts=2)
    seen = RunStatus(run(), (TaskStatus(placed[0], None), TaskStatus(placed[1], failed)), ())
    lines = shown(lambda c: c.status(seen)).splitlines()
    assert lines[0] == "run 20260101-000000-abcd  release f00d"
    assert lines[1].split() == [
        "TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH", "REASON",
    ]  # fmt: skip
    assert lines[2].split() == ["ps:0", "p", "2222", "-", "-", "UNKNOWN", *"----"]
    assert lines[3].split(maxsplit=10) == [
        "worker:0", "w", "2222", "0,1", "7", "FAILED", "1m", "15s", "2", "-",
        r"killed by SIGKILL \x1b[1m",
    ]  # fmt: skip


def test_a_table_is_never_cut(shown):
    long = report(reason="x" * 200)
    seen = RunStatus(run(), (TaskStatus(run().plan.placements[1], long),), ())
    assert "x" * 200 in shown(lambda c: c.status(seen))


def test_what_was_stopped_is_said(shown):
    out = shown(lambda c: c.stopped(run(), {"ps:0": "STOPPED", "worker:0": "SUCCEEDED"}))
    assert out == (
        "STOPPED   ps:0\nSUCCEEDED worker:0\nnothing of run 20260101-000000-abcd is left running\n"
    )


def collected(*checkpoints):
    return Collected(run().folder, "/h/work/checkpoints", checkpoints, 1, 2)


def test_what_was_collected_is_said(shown):
    folder = run().folder
    newest, older = Checkpoint("model-7", 7, ()), Checkpoint("model-3", 3, ())
    assert shown(lambda c: c.collected(collected(newest, older))) == (
        f"checkpoint {folder}/checkpoints/model-7 (and 1 older)\n"
        f"1 event file and 2 logs in {folder}\n"
    )


def test_that_there_is_no_checkpoint_is_said(shown):
    assert shown(lambda c: c.collected(collected())).startswith(
        "no checkpoint: the chief's /h/work/checkpoints holds no complete one\n"
    )


# Errors


def test_an_error_goes_to_standard_error_with_its_hint(capsys):
    Console().error(Unreachable("gpu-01", "no [bold]answer[/] \x1b[1m :100:", "try: ssh gpu-01"))
    captured = capsys.readouterr()
    assert captured.err == ("error: gpu-01: no [bold]answer[/] \\x1b[1m :100:\n  try: ssh gpu-01\n")
    assert captured.out == ""


def test_a_host_that_is_lost_is_told_and_that_the_run_goes_on(capsys):
    Console().lost(Unreachable("gpu-01", "the connection was lost"))
    assert capsys.readouterr().err == (
        "gpu-01: the connection was lost\ngpu-01 is followed no more; the run goes on\n"
    )


def test_with_json_people_read_standard_error(capsys):
    Console(for_json=True).say("for people")
    console.document({"é": 1})
    captured = capsys.readouterr()
    assert (captured.err, json.loads(captured.out)) == ("for people\n", {"é": 1})
    assert "é" in captured.out
