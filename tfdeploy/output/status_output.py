"""The table of `status`. On a narrow terminal whole columns are left out; nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import ends_text, escape_line
from tfdeploy.output import status_table
from tfdeploy.output.results_output import ending_text
from tfdeploy.output.status_table import (
    COLUMNS,
    NO_VALUE,
    STATE_STYLES,
    fitting_columns,
    is_empty,
)
from tfdeploy.shared.outcome import RUNNING, why_stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.status import RunStatus, TaskStatus
    from tfdeploy.output.console import Console
    from tfdeploy.output.status_table import Row
    from tfdeploy.output.stream import Cell

# Columns are left out in this order. TASK and STATE always stay.
OPTIONAL = ("REASON", "PORT", "PID", "RESTARTS", "SINCE", "GPUS", "HEALTH", "TRAINING", "HOST")


def print_status_so_far(console: Console, status: RunStatus, waiting: Sequence[str]) -> None:
    """Print the rows of the hosts that have answered, and which hosts are waited for."""
    _print_new_rows(console, status, [task for task in status.tasks if task.report])
    console.print_waiting(waiting)


def print_status(console: Console, status: RunStatus) -> None:
    """Print the rows, except those that were printed while others were waited for."""
    _print_new_rows(console, status, status.tasks)
    if status.ends_s is not None:
        console.print_text(ends_text(status.ends_s))
    _print_ending(console, status)
    _print_left_out(console, status)
    _print_notices(console, status)
    _print_log_problems(console, status)
    _print_exposed(console, status)
    console.print_notes(status.slow)
    console.printed.tasks.clear()


def _print_new_rows(console: Console, status: RunStatus, tasks: Sequence[TaskStatus]) -> None:
    new = [task for task in tasks if str(task.placement.task) not in console.printed.tasks]
    if new and not console.printed.tasks:
        network = status.run.inventory.network
        console.print_text(f"run {status.run.id}  release {status.run.release}  network {network}")
    if new:
        _print_task_rows(console, new)
    console.printed.tasks |= {str(task.placement.task) for task in new}


def _print_task_rows(console: Console, tasks: Sequence[TaskStatus]) -> None:
    rows = [
        {name: escape_line(text) for name, text in row.items()} for row in status_table.rows(tasks)
    ]
    width = console.out.rich.width if console.out.is_terminal else None
    columns = fitting_columns(COLUMNS, OPTIONAL, rows, width)
    console.out.print_table(columns, map(_with_style, rows))
    _print_hidden(console, rows, hidden_columns(rows, columns))


def _print_ending(console: Console, status: RunStatus) -> None:
    """Print how the run ended, if all of its tasks were chosen and have reported their end."""
    is_whole = len(status.tasks) == len(status.run.plan.placements) and not status.errors
    if is_whole and status.result not in (RUNNING, "unknown"):
        chief = status.report(str(status.run.plan.chief.task))
        reason = why_stopped(chief.reason) if chief else ""
        text = ending_text(status.result, status.outcome.exit, reason)
        console.print_text(f"run {status.run.id} {text}")


def _print_left_out(console: Console, status: RunStatus) -> None:
    """Print on which hosts tasks may run of which the plan knows nothing."""
    if status.left_out:
        hosts = fold_names(status.left_out)
        console.print_sentence(f"left out: {hosts}; tasks of an earlier start may still run there")
        console.print_text(f"  tfdeploy stop {status.run.flags} ends them, and the run")


def _print_notices(console: Console, status: RunStatus) -> None:
    """Print which notifications of the run's end have failed."""
    for task in status.tasks:
        if task.report and task.report.notice:
            log = f"supervisor.log of {task.placement.task} on {task.placement.host}"
            console.print_sentence(f"{task.report.notice} (see {log})")


def _print_log_problems(console: Console, status: RunStatus) -> None:
    """Print whose log can't be read."""
    for task in status.tasks:
        if task.report and task.report.log_problem:
            name = f"{task.placement.task} on {task.placement.host}"
            console.print_sentence(f"{name}: {task.report.log_problem}")


def _print_exposed(console: Console, status: RunStatus) -> None:
    """Print the ports that the guard does not cover."""
    for task in status.tasks:
        if task.report and task.report.exposed:
            ports, name = escape_line(task.report.exposed), task.placement.task
            text = f"{name}: the guard does not cover {ports}: everybody can connect"
            console.print_sentence(text)


def _print_hidden(console: Console, rows: Sequence[Row], hidden: Sequence[str]) -> None:
    """Print reasons below a table without that column, and name the other hidden columns."""
    if "REASON" in hidden:
        tasks: dict[str, list[str]] = {}
        for row in rows:
            tasks.setdefault(row["REASON"], []).append(row["TASK"])
        for reason, names in tasks.items():
            if reason not in NO_VALUE:
                console.print_sentence(f"{fold_names(names)}: {reason}")
    others = [column for column in hidden if column != "REASON"]
    if others:
        console.out.print((f"hidden: {' '.join(others)} (--json has all)", "dim"))


def hidden_columns(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the columns that are not in `columns` although they have a value."""
    return [name for name in COLUMNS if name not in columns and not is_empty(rows, name)]


def _with_style(row: Row) -> dict[str, Cell]:
    return {**row, "STATE": (row["STATE"], STATE_STYLES.get(row["STATE"], "default"))}
