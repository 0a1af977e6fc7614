"""What is printed while a run starts, trains and stops."""

from __future__ import annotations

import pytest

from tfdeploy.commands.resume import ResumeResult
from tfdeploy.commands.scale import ScaleResult
from tfdeploy.commands.stop import OtherTask, StopResult
from tfdeploy.errors import FleetError, TaskFailed, Unreachable
from tfdeploy.output.batching import BatchTimes
from tfdeploy.output.console import Console
from tfdeploy.output.run_events import (
    SINGLE_REPORTS,
    print_collect_failed,
    print_failure,
    print_followed_lines,
    print_host_back,
    print_host_lost,
    print_report,
    print_resumed,
    print_resuming,
    print_scaled,
    print_started,
    print_stopped,
)
from tfdeploy.results.checkpoint_copies import CheckpointCopy
from tfdeploy.shared.protocol.runs import SavedCheckpoint

from .samples import RUN_ID, make_report, make_run

# The failure of a run


SLOW = BatchTimes(3600.0, 3600.0)  # batches wait until something flushes them


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_traceback_that_was_printed_is_not_printed_again(capsys, is_quiet):
    console, log = Console(is_quiet=is_quiet), ["Traceback", "ValueError: bad"]
    print_followed_lines(console, "worker:0", "a", log)
    failure = TaskFailed("worker:0", "a", "it ended: exit 1", log=log)
    print_failure(console, FleetError([failure], "the logs: tfdeploy logs"))
    shown = log if is_quiet else log[-1:]
    assert capsys.readouterr().err.splitlines() == [
        "error: worker:0 on a: it ended: exit 1",
        *(f"  | {line}" for line in shown),
        "  the logs: tfdeploy logs",
    ]


# Tasks


def test_a_change_of_state_is_one_line(printed):
    report = make_report(state="RUNNING", reason="[b]")
    line = printed(lambda console: print_report(console, "gpu-01", report))
    assert line == "RUNNING   worker:0   gpu-01  pid 7  [b]\n"


@pytest.mark.parametrize(
    "change",
    [{"state": "\x1b]0;owned\x07"}, {"pid": "\x1b[2J"}, {"state": "[/x]"}, {"reason": "a\nREADY"}],
    ids=str,
)
def test_control_characters_in_a_report_are_escaped(printed, change):
    line = printed(lambda console: print_report(console, "gpu", make_report(**change)))
    assert "\x1b" not in line
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert "worker:0   gpu" in line


def test_a_repeated_report_is_printed_once(printed):
    def show(console):
        for state in ("RUNNING", "RUNNING", "READY", "READY"):
            print_report(console, "gpu", make_report(state=state))
        print_report(console, "gpu", make_report(state="READY", pid=8))

    lines = printed(show).splitlines()
    assert [line.split()[0] for line in lines] == ["RUNNING", "READY", "READY"]


def test_an_error_comes_after_the_reports_that_wait_in_a_batch(capsys):
    console = Console(times=SLOW)
    for index in range(SINGLE_REPORTS + 3):
        print_report(console, "gpu", make_report(task=f"worker:{index}", pid=index))
    print_report(console, "gpu", make_report(task="ps:0", state="FAILED", reason="exit 3"))
    assert "FAILED" not in capsys.readouterr().out
    console.print_error(Unreachable("gpu", "gone"))
    assert "FAILED" in capsys.readouterr().out


def test_reports_of_many_tasks_share_a_line_that_comes_before_the_result(printed):
    def show(console):
        for n in range(SINGLE_REPORTS + 900):
            print_report(console, f"gpu{n:03}", make_report(task=f"worker:{n}"))
        print_started(console, make_run())

    lines = printed(show, times=SLOW).splitlines()
    assert lines[:SINGLE_REPORTS] == [
        f"READY     {f'worker:{n}':<10} gpu{n:03}  pid 7" for n in range(SINGLE_REPORTS)
    ]
    assert lines[SINGLE_REPORTS:] == [
        "READY     worker:[40-939] gpu[040-939]",
        f"run {RUN_ID} is READY: 2 tasks on 2 hosts",
    ]


# The run


def test_a_started_run_is_printed_with_its_numbers_of_tasks_and_hosts(printed):
    line = printed(lambda console: print_started(console, make_run()))
    assert line == f"run {RUN_ID} is READY: 2 tasks on 2 hosts\n"


def test_tasks_that_succeeded_before_the_others_were_ready_are_counted(printed):
    def show(console):
        print_report(console, "w", make_report(state="SUCCEEDED"))
        print_started(console, make_run())

    line = printed(show).splitlines()[1]
    assert line == f"run {RUN_ID} has started, 1 task succeeded already: 2 tasks on 2 hosts"


def test_a_run_is_not_called_ready_if_tasks_have_ended_since(printed):
    def show(console):
        print_report(console, "p", make_report(task="ps:0", state="BACKOFF"))
        print_report(console, "w", make_report(task="worker:0", state="SUCCEEDED"))
        print_report(console, "w", make_report(task="worker:9", state="LOST"))  # of a start before
        print_started(console, make_run())

    *_, line = printed(show).splitlines()
    parts = "1 task succeeded already, 1 task is no longer READY"
    assert line == f"run {RUN_ID} has started, {parts}: 2 tasks on 2 hosts"


def resume_result(source, files=(), saved=None):
    return ResumeResult(make_run(), source, files, StopResult({}, saved), 2.0, 9.0)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (None, "the beginning"),
        (CheckpointCopy("gpu-02", "/f", "model-7", 7, ()), "model-7 on gpu-02"),
        (CheckpointCopy("", "/f", "model-7", 7, ()), "model-7 on the controller"),
    ],
)
def test_a_resumed_run_is_printed_with_its_checkpoint(printed, source, text):
    resumed = resume_result(source)
    lines = printed(lambda console: print_resumed(console, resumed)).splitlines()
    assert lines[0] == f"run {RUN_ID} resumes from {text}"
    assert lines[1].startswith(f"run {RUN_ID} is READY: ")


def test_a_resumed_run_is_printed_with_its_chiefs_files(printed):
    source = CheckpointCopy("", "/f", "model-7", 7, ())
    files = tuple(f"{letter}.keras" for letter in "abcdef")
    resumed = resume_result(source, files)
    lines = printed(lambda console: print_resumed(console, resumed)).splitlines()
    assert lines[0] == (
        f"run {RUN_ID} resumes from model-7 on the controller and its chief's files a.keras, "
        "b.keras, c.keras, d.keras and 2 more files"
    )
    resumed = resume_result(None, files[:1])
    lines = printed(lambda console: print_resumed(console, resumed)).splitlines()
    assert lines[0].endswith(" resumes from its chief's files a.keras")


def test_a_scaled_run_is_printed_with_what_it_cost(printed):
    resumed = resume_result(None, saved=SavedCheckpoint("model-7", 3.0))
    scaled = ScaleResult("1 ps and 2 workers", "1 ps and 4 workers", resumed)
    assert printed(lambda console: print_scaled(console, scaled)).splitlines()[2:] == [
        "scaled from 1 ps and 2 workers to 1 ps and 4 workers: stopped in 2s, READY 9s later",
        "model-7 was 3s old: what was trained after it is trained again",
    ]


def test_a_stopped_run_is_printed_with_the_end_of_each_task(printed):
    stopped = StopResult({"ps:0": "STOPPED", "worker:0": "SUCCEEDED"}, None)
    assert printed(lambda console: print_stopped(console, make_run(), stopped)) == (
        f"STOPPED   ps:0\nSUCCEEDED worker:0\nall processes of run {RUN_ID} have exited\n"
    )


def test_a_stop_names_tasks_that_the_plan_does_not_have_and_hosts_that_gave_no_answer(printed):
    others = (OtherTask("worker:7", "idle", "STOPPED"),)
    stopped = StopResult({"ps:0": "STOPPED"}, None, others=others, silent_hosts=("spare",))
    lines = printed(lambda console: print_stopped(console, make_run(), stopped)).splitlines()
    assert lines[:3] == [
        "STOPPED   ps:0",
        "STOPPED   worker:7 on idle  of another start",
        f"all processes of run {RUN_ID} on p, w have exited",
    ]
    assert lines[3].startswith("spare gave no answer: ")


def test_a_stop_prints_what_is_lost_since_the_newest_checkpoint(printed):
    stopped = StopResult({}, SavedCheckpoint("model-7", 185.0))
    text = printed(lambda console: print_stopped(console, make_run(), stopped))
    assert text.startswith(
        "the newest checkpoint is model-7, 3m 05s old; what was trained after it is lost\n"
    )


def test_a_stop_prints_which_tasks_of_unreachable_hosts_exited_and_which_may_still_run(printed):
    run = make_run()
    ps, worker = run.plan.placements
    error = Unreachable("p", "gone")
    stopped = StopResult({}, None, (error,), (worker,), (ps,))
    lines = printed(lambda console: print_stopped(console, run, stopped)).splitlines()
    assert lines == [
        "STOPPED   worker:0 on w  worker:0's supervisor passed on the stop",
        "ps:0 on p may still be running: no answer. Each task exits once its supervisor",
        "learns of the stop, or has lost contact with worker:0 for 30m 00s;",
        f"when its host answers again: tfdeploy stop {run.flags}",
    ]


# Hosts


def test_a_lost_host_is_printed_and_that_the_run_continues(capsys):
    print_host_lost(Console(), Unreachable("gpu-01", "the connection was lost [b]"))
    print_host_back(Console(), "gpu-01")
    assert capsys.readouterr().err == (
        "gpu-01: the connection was lost [b]\n"
        "retrying gpu-01 until it answers; the run continues\n"
        "gpu-01 answers again\n"
    )


def test_many_hosts_that_are_lost_at_the_same_time_share_a_line(capsys):
    console = Console(times=SLOW)
    names = [f"gpu-{n}" for n in range(50)]
    for name in names:
        print_host_lost(console, Unreachable(name, "the connection was lost"))
    for name in names:
        print_host_back(console, name)
    console.print_text("")
    assert capsys.readouterr().err.splitlines()[-6:] == [
        "gpu-[3-49]: the connection was lost",
        "retrying gpu-[3-49] until they answer; the run continues",
        *(f"gpu-{n} answers again" for n in range(3)),
        "gpu-[3-49] answer again",
    ]


@pytest.mark.parametrize(
    ("print_warning", "next_step"),
    [
        (print_collect_failed, "tfdeploy tries again with the next checkpoint"),
        (print_resuming, "it will not recover by itself; resuming the run"),
    ],
)
def test_a_warning_is_printed_with_what_happens_next(capsys, print_warning, next_step):
    print_warning(Console(), Unreachable("gpu-01", "no answer \x1b[1m"))
    captured = capsys.readouterr()
    assert (captured.err, captured.out) == (f"gpu-01: no answer \\x1b[1m\n{next_step}\n", "")
