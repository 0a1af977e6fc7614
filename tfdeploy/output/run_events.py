"""What happens while a run starts, trains and stops: task states, log lines, lost hosts.

Bursts of events are batched: the first few are reported one by one, the rest in groups.
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdeploy.errors import FleetError, individual_errors
from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names
from tfdeploy.formatting.humanize import format_count, format_duration, shorten_names
from tfdeploy.output import results_output, status_table
from tfdeploy.output.terminal import STATE_STYLES, LogTerminal
from tfdeploy.shared.records import BACKOFF, FAILED, LOST, STOPPED, SUCCEEDED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.commands.exec import Entrance
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.errors import HostError, TfdeployError
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.records import TaskReport

T = TypeVar("T")
GROUP_S = 1.0  # events that arrive within this time are reported together
QUIET_S = 5.0  # after this time without an event, the next ones are reported one by one again
ALARMING = (BACKOFF, FAILED, LOST)  # printed in quiet, too
SINGLE_REPORTS = 40  # the first changes of a burst are printed one by one, the rest in groups


class Batch(Generic[T]):
    """Call `report` with every event that is added: with one at a time for the first `single` of a
    burst, then with several. Any thread may add events.

    A thread of its own reports the events that wait. If that fails because the output is closed,
    the next `add` raises why: OSError, or SystemExit, which rich makes of it.

    Call `flush` before printing anything else, so that events appear in the order they happened.
    """

    def __init__(self, report: Callable[[Sequence[T]], None], single: int) -> None:
        self._report = report
        self._single = single
        self._burst = 0  # events in the current burst
        self._last_event = time.monotonic()
        self._waiting: list[T] = []
        self._failure: OSError | SystemExit | None = None
        self._lock = threading.RLock()  # `report` may call `flush`

    def add(self, event: T) -> None:
        with self._lock:
            if self._failure:
                raise self._failure
            now, previous = time.monotonic(), self._last_event
            self._last_event = now
            self._burst = 1 if now - previous > QUIET_S else self._burst + 1
            if self._burst <= self._single:
                self.flush()
                self._report([event])
                return
            self._waiting.append(event)
            if len(self._waiting) == 1:
                timer = threading.Timer(GROUP_S, self._flush_in_thread)
                timer.daemon = True
                timer.start()

    def flush(self) -> None:
        """Report the events that wait."""
        with self._lock:
            events, self._waiting = self._waiting, []
            if events:
                self._report(events)

    def _flush_in_thread(self) -> None:
        try:
            self.flush()
        except (OSError, SystemExit) as error:
            self._failure = error


class RunOutput(LogTerminal):
    def __init__(self, *, for_json: bool = False, is_quiet: bool = False) -> None:
        super().__init__(for_json=for_json, is_quiet=is_quiet)
        self._reports = Batch(self._print_reports, SINGLE_REPORTS)
        self._lost_hosts = Batch(self._print_lost_hosts, MAX_LISTED)
        self._returned_hosts = Batch(self._print_returned_hosts, MAX_LISTED)
        self._printed_reports: dict[str, tuple[Any, ...]] = {}
        self._followed: set[str] = set()  # tasks whose log lines were printed
        self._ended: set[str] = set()  # tasks whose ends were printed before the others'
        atexit.register(self.flush)  # main() prints the error that ends a command by a new Console

    def flush(self) -> None:
        for batch in (self._reports, self._lost_hosts, self._returned_hosts):
            batch.flush()
        super().flush()

    # Tasks

    def print_report(self, host: str, report: TaskReport) -> None:
        """Print one line for a change of a task's state, and nothing if it repeats the last one."""
        change = (report.state, report.pid, report.restarts)
        if self._printed_reports.get(report.task) == change:
            return
        self._printed_reports[report.task] = change
        self._reports.add((host, report))

    def _print_reports(self, reports: Sequence[tuple[str, TaskReport]]) -> None:
        for state, tasks, hosts, pid, reason in status_table.change_rows(reports):
            style = STATE_STYLES.get(state, "default")
            line = f" {tasks:<10} {hosts}"
            line += f"  pid {pid}" if pid else ""
            line += f"  {reason}" if reason else ""
            with self._lock:
                if not self.is_quiet or state in ALARMING:
                    self._out.print((f"{state!s:<9}", style), line)

    def print_followed_lines(self, task: str, host: str, lines: list[str]) -> None:
        """Print log lines of a run that is followed to its end."""
        if not self.is_quiet:
            self._followed.add(task)
            self.print_log_lines(task, host, lines)

    def print_failure(self, error: TfdeployError) -> None:
        """Print why a run failed. Of a log that was printed before, one line is."""
        errors = [
            each.with_main_line() if {*each.names} & self._followed else each
            for each in individual_errors(error)
        ]
        is_fleet = isinstance(error, FleetError)
        self.print_error(FleetError(errors, error.hint) if is_fleet else errors[0])

    # The run

    @contextmanager
    def wait_progress(self) -> Iterator[Callable[[Sequence[TfdeployError]], None]]:
        """Return a context while `start` waits, and a function that prints what it waits for. A
        terminal also shows for how long it has waited."""
        with self._wait_clock():
            yield self._print_busy

    def _wait_clock(self) -> AbstractContextManager[object]:
        stream = self._progress_stream
        if not stream.is_terminal:
            return nullcontext()
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("waiting"), TimeElapsedColumn())
        clock = Progress(*columns, console=stream.rich, transient=True)
        clock.add_task("")
        return clock

    def _print_busy(self, errors: Sequence[TfdeployError]) -> None:
        without_hints = FleetError([error.with_hint("") for error in errors])
        self.print_text(*(f"waiting: {line}" for line in str(without_hints).split("\n")))

    def print_started(self, run: Run) -> None:
        tasks = format_count(len(run.plan.placements), "task")
        hosts = format_count(len(run.plan.hosts), "host")
        succeeded = sum(state == SUCCEEDED for state, *_ in self._printed_reports.values())
        ended = format_count(succeeded, "task")
        state = f"has started, {ended} succeeded already" if succeeded else "is READY"
        self.print_text(f"run {run.id} {state}: {tasks} on {hosts}")

    def print_queued(self, run: Run) -> None:
        hosts = fold_names(run.plan.hosts)
        self.print_text(
            f"run {run.id} is in the queue of {hosts}, and starts when it is its turn",
            f"(tfdeploy queue shows its place, tfdeploy attach {run.flags} follows it)",
        )

    def print_resumed(self, resumed: ResumeResult) -> None:
        self.print_resumes_from(resumed)
        self.print_started(resumed.run)

    def print_resumes_from(self, resumed: ResumeResult) -> None:
        source = results_output.resume_source(resumed)
        self.print_text(f"run {resumed.run.id} resumes from {source}")
        self.print_notes(resumed.left_running)

    def print_scaled(self, scaled: ScaleResult) -> None:
        """Print what changed, and what it cost."""
        resumed = scaled.resumed
        self.print_resumed(resumed)
        self.print_text(
            f"scaled from {scaled.before} to {scaled.after}: stopped in "
            f"{format_duration(resumed.stop_s)}, READY {format_duration(resumed.start_s)} later"
        )
        if resumed.stopped.saved:
            saved = resumed.stopped.saved
            age = format_duration(saved.age_s)
            self.print_text(f"{saved.name} was {age} old: what was trained after it is trained "
                            "again")  # fmt: skip

    def print_restored_record(self, run: Run, hosts: Sequence[str]) -> None:
        source = shorten_names(hosts)
        text = f"run {run.id} had no record on the controller: restored it from {source}"
        self._print_yellow(text)

    def print_newer_record(self, run: Run, hosts: Sequence[str]) -> None:
        text = f"run {run.id} was resumed or scaled elsewhere: took its record from "
        self._print_yellow(text + shorten_names(hosts))

    def print_stopped_so_far(self, states: Mapping[str, str], waiting: Sequence[str]) -> None:
        """Print which tasks have stopped, and which hosts are waited for."""
        self._print_ends(states)
        self.print_waiting(waiting)

    def _print_ends(self, states: Mapping[str, str]) -> None:
        """Print the states of tasks that were not printed yet."""
        new = {task: state for task, state in states.items() if task not in self._ended}
        self._ended |= new.keys()
        for state, task in status_table.end_rows(new):
            why = "  its host has no record and no process of it" if state == UNKNOWN else ""
            self.print_text(f"{state:<9} {task}{why}")

    def print_stopped(self, run: Run, stopped: StopResult) -> None:
        self._print_ends(stopped.states)
        self._ended.clear()
        if stopped.saved:
            age = format_duration(stopped.saved.age_s)
            self.print_text(
                f"the newest checkpoint is {stopped.saved.name}, {age} old; "
                "what was trained after it is lost",
            )
        for other in stopped.others:
            self.print_text(f"{other.state:<9} {other.task} on {other.host}  of another start")
        for placement in stopped.ended_unasked:
            self.print_text(
                f"{STOPPED:<9} {placement.task} on {placement.host}  "
                f"{run.plan.chief.task}'s supervisor passed on the stop"
            )
        if stopped.unconfirmed:
            self.print_text(*_still_running(run, stopped.unconfirmed))
        elif not stopped.errors or stopped.ended_unasked:
            where = f" on {fold_names(run.plan.hosts)}" if stopped.silent_hosts else ""
            self.print_text(f"all processes of run {run.id}{where} have exited")
            if stopped.silent_hosts:
                self.print_text(
                    f"{fold_names(stopped.silent_hosts)} gave no answer: the run's plan has no "
                    "task there, but one that was started before, or by another controller, may "
                    "still run"
                )

    # Ways to a task

    def print_entrance(self, entrance: Entrance) -> None:
        place = f"{entrance.placement.task} on {entrance.placement.host}: {entrance.directory}"
        self._err.print(place)

    # Hosts

    def print_host_lost(self, error: HostError) -> None:
        self._lost_hosts.add(error)

    def _print_lost_hosts(self, errors: Sequence[HostError]) -> None:
        error = errors[0] if len(errors) == 1 else FleetError(errors)
        hosts = fold_names(error.host for error in errors)
        answer = "it answers" if len(errors) == 1 else "they answer"
        self._print_warning(error, f"retrying {hosts} until {answer}; the run continues")

    def print_host_back(self, host: str) -> None:
        self._lost_hosts.flush()
        self._returned_hosts.add(host)

    def _print_returned_hosts(self, hosts: Sequence[str]) -> None:
        answer = "answers" if len(hosts) == 1 else "answer"
        self._print_yellow(f"{fold_names(hosts)} {answer} again")

    def print_collect_failed(self, error: TfdeployError) -> None:
        self._print_warning(error, "tfdeploy tries again with the next checkpoint")

    def print_resuming(self, error: TfdeployError) -> None:
        self._print_warning(error, "it will not recover by itself; resuming the run")


def _still_running(run: Run, placements: Sequence[Placement]) -> tuple[str, str]:
    tasks = fold_names(str(placement.task) for placement in placements)
    hosts = fold_names(placement.host for placement in placements)
    limit = format_duration(run.inventory.training.orphan_timeout_s)
    return (
        f"{tasks} on {hosts} may still be running: no answer. Each task exits once its supervisor",
        f"learns of the stop, or has lost contact with {run.plan.chief.task} for {limit}",
    )
