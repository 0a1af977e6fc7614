"""What happens while a run starts, trains and stops: task states, log lines, lost hosts."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from tfdeploy.errors import FleetError, individual_errors
from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names
from tfdeploy.formatting.humanize import format_count, format_duration
from tfdeploy.output import results_output, status_table
from tfdeploy.output.log_lines import print_log_lines
from tfdeploy.output.status_table import STATE_STYLES
from tfdeploy.shared.records import BACKOFF, FAILED, LOST, STOPPED, SUCCEEDED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.commands.exec import Entrance
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.errors import HostError, TfdeployError
    from tfdeploy.output.console import Console
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

ALARMING = (BACKOFF, FAILED, LOST)  # printed in quiet, too
NOT_READY = (*ALARMING, STOPPED)
SINGLE_REPORTS = 40  # the first changes of a burst are printed one by one, the rest in groups


def print_report(console: Console, host: str, report: TaskReport) -> None:
    """Print one line for a change of a task's state, and nothing if it repeats the last one."""
    change = (report.state, report.pid, report.restarts)
    if console.printed.changes.get(report.task) == change:
        return
    console.printed.changes[report.task] = change
    console.batch(_print_reports, SINGLE_REPORTS).add((host, report))


def print_start_report(console: Console, host: str, report: TaskReport) -> None:
    """Print a change before all tasks are READY. A failure is followed by an error that says it."""
    if report.state not in (FAILED, LOST):
        print_report(console, host, report)


def _print_reports(console: Console, reports: Sequence[tuple[str, TaskReport]]) -> None:
    for state, tasks, hosts, pid, reason in status_table.change_rows(reports):
        style = STATE_STYLES.get(state, "default")
        line = f" {tasks:<10} {hosts}"
        line += f"  pid {pid}" if pid else ""
        line += f"  {reason}" if reason else ""
        with console.lock:
            if not console.is_quiet or state in ALARMING:
                console.out.print((f"{state!s:<9}", style), line)


def print_followed_lines(console: Console, task: str, host: str, lines: list[str]) -> None:
    """Print log lines of a run that is followed to its end."""
    if not console.is_quiet:
        console.printed.followed.add(task)
        print_log_lines(console, task, host, lines)


def print_failure(console: Console, error: TfdeployError) -> None:
    """Print why a run failed. Of a log that was printed before, one line is."""
    errors = [
        each.with_main_line() if {*each.names} & console.printed.followed else each
        for each in individual_errors(error)
    ]
    is_fleet = isinstance(error, FleetError)
    console.print_error(FleetError(errors, error.hint) if is_fleet else errors[0])


# The run


@contextmanager
def wait_progress(console: Console) -> Iterator[Callable[[Sequence[TfdeployError]], None]]:
    """Return a context while `start` waits, and a function that prints what it waits for. A
    terminal also shows for how long it has waited."""
    with _wait_clock(console):
        yield partial(_print_busy, console)


def _wait_clock(console: Console) -> AbstractContextManager[object]:
    stream = console.progress_stream
    if not stream.is_terminal:
        return nullcontext()
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("waiting"), TimeElapsedColumn())
    clock = Progress(*columns, console=stream.rich, transient=True)
    clock.add_task("")
    return clock


def _print_busy(console: Console, errors: Sequence[TfdeployError]) -> None:
    without_hints = FleetError([error.with_hint("") for error in errors])
    console.print_text(*(f"waiting: {line}" for line in str(without_hints).split("\n")))


def print_started(console: Console, run: Run) -> None:
    tasks = format_count(len(run.plan.placements), "task")
    hosts = format_count(len(run.plan.hosts), "host")
    console.print_text(f"run {run.id} {_start_state(console, run)}: {tasks} on {hosts}")


def _start_state(console: Console, run: Run) -> str:
    changes = console.printed.changes  # also of tasks that a resume has left out
    found = (changes.get(str(placement.task)) for placement in run.plan.placements)
    states = [change[0] for change in found if change]
    succeeded, lost = states.count(SUCCEEDED), sum(state in NOT_READY for state in states)
    parts = [f"{format_count(succeeded, 'task')} succeeded already"] if succeeded else []
    if lost:
        parts.append(f"{format_count(lost, 'task')} {'are' if lost > 1 else 'is'} no longer READY")
    return f"has started, {', '.join(parts)}" if parts else "is READY"


def print_queued(console: Console, run: Run) -> None:
    hosts, queue = fold_names(run.plan.hosts), f"tfdeploy queue {run.file_flag}".rstrip()
    console.print_text(
        f"run {run.id} is in the queue of {hosts}, and starts when it is its turn",
        f"({queue} shows its place, tfdeploy attach {run.flags} follows it)",
    )


def print_resumed(console: Console, resumed: ResumeResult) -> None:
    print_resumes_from(console, resumed)
    print_started(console, resumed.run)


def print_resumes_from(console: Console, resumed: ResumeResult) -> None:
    source = results_output.resume_source(resumed)
    console.print_text(f"run {resumed.run.id} resumes from {source}")
    console.print_notes(resumed.left_running)


def print_scaled(console: Console, scaled: ScaleResult) -> None:
    """Print what changed, and what it cost."""
    resumed = scaled.resumed
    print_resumed(console, resumed)
    console.print_text(
        f"scaled from {scaled.before} to {scaled.after}: stopped in "
        f"{format_duration(resumed.stop_s)}, READY {format_duration(resumed.start_s)} later"
    )
    if resumed.stopped.saved:
        saved = resumed.stopped.saved
        age = format_duration(saved.age_s)
        console.print_text(f"{saved.name} was {age} old: what was trained after it is trained "
                        "again")  # fmt: skip


def print_stopped_so_far(
    console: Console, states: Mapping[str, str], waiting: Sequence[str]
) -> None:
    """Print which tasks have stopped, and which hosts are waited for."""
    _print_ends(console, {task: state for task, state in states.items() if state != UNKNOWN})
    console.print_waiting(waiting)


def _print_ends(console: Console, states: Mapping[str, str]) -> None:
    """Print the states of tasks that were not printed yet."""
    new = {task: state for task, state in states.items() if task not in console.printed.ended}
    console.printed.ended |= new.keys()
    for state, task in status_table.end_rows(new):
        why = "  its host has no record and no process of it" if state == UNKNOWN else ""
        console.print_text(f"{state:<9} {task}{why}")


def print_stopped(console: Console, run: Run, stopped: StopResult) -> None:
    _print_ends(console, stopped.states)
    console.printed.ended.clear()
    if stopped.saved:
        age = format_duration(stopped.saved.age_s)
        console.print_text(
            f"the newest checkpoint is {stopped.saved.name}, {age} old; "
            "what was trained after it is lost",
        )
    for other in stopped.others:
        console.print_text(f"{other.state:<9} {other.task} on {other.host}  of another start")
    for placement in stopped.ended_unasked:
        console.print_text(
            f"{STOPPED:<9} {placement.task} on {placement.host}  "
            f"{run.plan.chief.task}'s supervisor passed on the stop"
        )
    if stopped.unconfirmed:
        console.print_text(*_still_running(run, stopped.unconfirmed))
    elif not stopped.errors or stopped.ended_unasked:
        where = f" on {fold_names(run.plan.hosts)}" if stopped.silent_hosts else ""
        console.print_text(f"all processes of run {run.id}{where} have exited")
        if stopped.silent_hosts:
            console.print_text(
                f"{fold_names(stopped.silent_hosts)} gave no answer: the run's plan has no "
                "task there, but one that was started before, or by another controller, may "
                "still run"
            )


# Ways to a task


def print_entrance(console: Console, entrance: Entrance) -> None:
    place = f"{entrance.placement.task} on {entrance.placement.host}: {entrance.directory}"
    console.err.print(place)


# Hosts


def print_host_lost(console: Console, error: HostError) -> None:
    console.batch(_print_lost_hosts, MAX_LISTED).add(error)


def _print_lost_hosts(console: Console, errors: Sequence[HostError]) -> None:
    error = errors[0] if len(errors) == 1 else FleetError(errors)
    hosts = fold_names(error.host for error in errors)
    answer = "it answers" if len(errors) == 1 else "they answer"
    console.print_warning(error, f"retrying {hosts} until {answer}; the run continues")


def print_host_back(console: Console, host: str) -> None:
    console.batch(_print_lost_hosts, MAX_LISTED).flush()
    console.batch(_print_returned_hosts, MAX_LISTED).add(host)


def _print_returned_hosts(console: Console, hosts: Sequence[str]) -> None:
    answer = "answers" if len(hosts) == 1 else "answer"
    console.print_yellow(f"{fold_names(hosts)} {answer} again")


def print_collect_failed(console: Console, error: TfdeployError) -> None:
    console.print_warning(error, "tfdeploy tries again with the next checkpoint")


def print_resuming(console: Console, error: TfdeployError) -> None:
    console.print_warning(error, "it will not recover by itself; resuming the run")


def _still_running(run: Run, placements: Sequence[Placement]) -> tuple[str, ...]:
    tasks = fold_names(str(placement.task) for placement in placements)
    hosts = fold_names(placement.host for placement in placements)
    limit = format_duration(run.inventory.training.orphan_timeout_s)
    return (
        f"{tasks} on {hosts} may still be running: no answer. Each task exits once its supervisor",
        f"learns of the stop, or has lost contact with {run.plan.chief.task} for {limit};",
        f"when its host answers again: tfdeploy stop {run.flags}",
    )
