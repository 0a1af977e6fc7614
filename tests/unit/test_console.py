"""What a person sees of plans, runs, checkpoints and errors."""

from __future__ import annotations

import json

import pytest

from tfdeploy import console, flood, words
from tfdeploy.agent.records import TaskReport
from tfdeploy.console import Console
from tfdeploy.errors import Unreachable
from tfdeploy.run import Run
from tfdeploy.steps.collect import BadCheckpoint, Checkpoint, Collected
from tfdeploy.steps.resume import Copy, Resumed
from tfdeploy.steps.status import RunStatus, TaskStatus
from tfdeploy.steps.stop import Stopped
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


# Reports


def test_a_change_of_state_is_one_line(shown):
    out = shown(lambda c: c.report("gpu-01", report(state="RUNNING", reason="[b]")))
    assert out == "RUNNING   worker:0   gpu-01  pid 7  [b]\n"


@pytest.mark.parametrize(
    "lie", [{"state": "\x1b]0;owned\x07"}, {"pid": "\x1b[2J"}, {"state": "[/x]"}], ids=str
)
def test_what_a_host_says_of_itself_never_reaches_the_terminal_as_it_is(shown, lie):
    out = shown(lambda c: c.report("gpu", report(**lie)))
    assert "\x1b" not in out
    assert out.endswith("\n")
    assert "worker:0   gpu" in out


def test_what_waits_to_be_told_is_told_before_an_error(capsys):
    """And before the end, where another console tells the error."""
    one = Console()
    for index in range(console.TASKS + 3):
        one.report("gpu", report(task=f"worker:{index}", pid=index))
    one.report("gpu", report(task="ps:0", state="FAILED", reason="exit 3"))
    assert "FAILED" not in capsys.readouterr().out
    one.error(Unreachable("gpu", "gone"))
    assert "FAILED" in capsys.readouterr().out


def test_a_state_is_told_once_however_often_it_is_reported(shown):
    def tell(console):
        for state in ("RUNNING", "RUNNING", "READY", "READY"):
            console.report("gpu", report(state=state))
        console.report("gpu", report(state="READY", pid=8))

    assert [line.split()[0] for line in shown(tell).splitlines()] == ["RUNNING", "READY", "READY"]


@pytest.fixture
def slow(monkeypatch):
    """Whoever looks is faster than what waits to be told together."""
    monkeypatch.setattr(flood, "TOGETHER_S", 60.0)


def test_changes_of_many_tasks_are_told_together_and_before_what_comes_of_them(shown, slow):
    def tell(c):
        for n in range(console.TASKS + 900):
            c.report(f"gpu{n:03}", report(task=f"worker:{n}"))
        c.started(run())

    lines = shown(tell).splitlines()
    assert lines[: console.TASKS] == [
        f"READY     {f'worker:{n}':<10} gpu{n:03}  pid 7" for n in range(console.TASKS)
    ]
    assert lines[console.TASKS :] == [
        "READY     worker:[40-939] gpu[040-939]",
        "run 20260101-000000-abcd is READY: 2 tasks on 2 hosts",
    ]


def test_a_started_run_is_counted(shown):
    out = shown(lambda c: c.started(run()))
    assert out == "run 20260101-000000-abcd is READY: 2 tasks on 2 hosts\n"


def test_what_ended_well_before_all_was_ready_is_counted(shown):
    def tell(console):
        console.report("w", report(state="SUCCEEDED"))
        console.started(run())

    assert shown(tell).splitlines()[1] == (
        "run 20260101-000000-abcd has started, 1 ended well already: 2 tasks on 2 hosts"
    )


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (None, "the beginning"),
        (Copy("gpu-02", "/f", "model-7", 7, ()), "model-7, from gpu-02"),
        (Copy("", "/f", "model-7", 7, ()), "model-7, from here"),
    ],
)
def test_a_resumed_run_is_told_with_what_it_goes_on_from(shown, source, where):
    lines = shown(lambda c: c.resumed(Resumed(run(), source))).splitlines()
    assert lines[0] == f"run 20260101-000000-abcd goes on from {where}"
    assert lines[1].startswith("run 20260101-000000-abcd is READY: ")


def test_status_shows_every_task_and_who_is_unknown(shown):
    placed = run().plan.placements
    failed = report(state="FAILED", health="-", reason="killed by SIGKILL \x1b[1m", restarts=2)
    seen = RunStatus(run(), (TaskStatus(placed[0], None), TaskStatus(placed[1], failed)), ())
    lines = shown(lambda c: c.status(seen)).splitlines()
    assert lines[0] == "run 20260101-000000-abcd  release f00d"
    assert lines[1].split() == [
        "TASK", "HOST", "PORT", "GPUS", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH",
        "TRAINING", "REASON",
    ]  # fmt: skip
    assert lines[2].split() == ["ps:0", "p", "2222", "-", "-", "UNKNOWN", *"-----"]
    assert lines[3].split(maxsplit=11) == [
        "worker:0", "w", "2222", "0,1", "7", "FAILED", "1m", "15s", "2", "-", "-",
        r"killed by SIGKILL \x1b[1m",
    ]  # fmt: skip


def test_a_table_is_never_cut(shown):
    long = report(reason="x" * 200)
    seen = RunStatus(run(), (TaskStatus(run().plan.placements[1], long),), ())
    assert "x" * 200 in shown(lambda c: c.status(seen))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "unknown"),
        ({"quiet_s": 65.0}, "unknown, log 1m 05s ago"),
        ({"step": 7, "step_age_s": 3.0, "quiet_s": 1.0}, "step 7, 3s ago"),
        ({"step": 0, "step_age_s": words.STALLED_S + 1}, "stalled at step 0, 2m 01s ago"),
        ({"state": "RUNNING", "quiet_s": 1.0}, "unknown, log 1s ago"),
        ({"state": "BACKOFF", "quiet_s": 1.0}, "-"),
        ({"state": "LOST", "step": 7, "step_age_s": 3.0}, "-"),
    ],
)
def test_whether_training_moves_is_said_as_far_as_it_is_known(fields, told):
    assert words.training(report(**fields)) == told


def test_what_was_stopped_is_said(shown):
    states = {"ps:0": "STOPPED", "worker:0": "SUCCEEDED"}
    assert shown(lambda c: c.stopped(run(), Stopped(states, None))) == (
        "STOPPED   ps:0\nSUCCEEDED worker:0\nnothing of run 20260101-000000-abcd is left running\n"
    )


def test_what_a_stop_loses_is_said(shown):
    out = shown(lambda c: c.stopped(run(), Stopped({}, ("model-7", 185.0))))
    assert "newest checkpoint is model-7, 3m 05s old: what came after it" in out


def collected(*checkpoints, bad=()):
    return Collected(run().folder, "/h/work/checkpoints", checkpoints, 1, 2, bad)


def test_what_was_collected_is_said(shown):
    folder = run().folder
    newest, older = Checkpoint("model-7", 7, (), True), Checkpoint("model-3", 3, (), True)
    assert shown(lambda c: c.collected(collected(newest, older))) == (
        f"checkpoint {folder}/checkpoints/model-7 (and 1 older)\n"
        f"1 event file and 2 logs in {folder}\n"
    )


def test_a_checkpoint_that_was_not_read_is_told_from_one_that_was(shown):
    unread = Checkpoint("model-7", 7, (), False)
    bad = BadCheckpoint("model-9", "DataLossError: \x1b[1m")
    lines = shown(lambda c: c.collected(collected(unread, bad=[bad]))).splitlines()
    assert lines[1:3] == [
        "not verified: no TensorFlow on the chief's host, or no room, to read it with",
        r"checkpoint model-9 is broken there and was left: DataLossError: \x1b[1m",
    ]


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
    Console().waiting(Unreachable("gpu-01", "the connection was lost [b]"))
    Console().back("gpu-01")
    assert capsys.readouterr().err == (
        "gpu-01: the connection was lost [b]\n"
        "gpu-01 is asked again until it answers; the run goes on\n"
        "gpu-01 answers again\n"
    )


def test_many_that_are_lost_at_the_same_time_are_told_together(capsys, slow):
    console = Console()
    names = [f"gpu-{n}" for n in range(50)]
    for name in names:
        console.waiting(Unreachable(name, "the connection was lost"))
    for name in names:
        console.back(name)
    console.say("")
    assert capsys.readouterr().err.splitlines()[-6:] == [
        "gpu-[3-49]: the connection was lost",
        "gpu-[3-49] are asked again until they answer; the run goes on",
        *(f"gpu-{n} answers again" for n in range(3)),
        "gpu-[3-49] answer again",
    ]


@pytest.mark.parametrize(
    ("tell", "then"),
    [
        (Console.delayed, "the next checkpoint is tried again"),
        (Console.fallen, "that won't heal by itself: the run is resumed"),
    ],
)
def test_what_goes_wrong_on_the_way_is_told_with_what_follows(capsys, tell, then):
    tell(Console(), Unreachable("gpu-01", "no answer \x1b[1m"))
    captured = capsys.readouterr()
    assert (captured.err, captured.out) == (f"gpu-01: no answer \\x1b[1m\n{then}\n", "")


def test_with_json_people_read_standard_error(capsys):
    Console(for_json=True).say("for people")
    console.document({"é": 1})
    captured = capsys.readouterr()
    assert (captured.err, json.loads(captured.out)) == ("for people\n", {"é": 1})
    assert "é" in captured.out
