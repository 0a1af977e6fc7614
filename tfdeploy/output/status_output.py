"""The table of `status`. On a narrow terminal whole columns are left out; nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import ends_text, escape_line
from tfdeploy.output import status_table
from tfdeploy.output.status_table import COLUMNS, fitting_columns, is_empty
from tfdeploy.output.terminal import STATE_STYLES, Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.status import RunStatus, TaskStatus
    from tfdeploy.output.status_table import Row
    from tfdeploy.output.stream import Cell

# Columns are left out in this order. TASK and STATE always stay.
OPTIONAL = ("REASON", "PORT", "PID", "RESTARTS", "SINCE", "GPUS", "HEALTH", "TRAINING", "HOST")


class StatusOutput(Terminal):
    def __init__(self, *, for_json: bool = False, is_quiet: bool = False) -> None:
        super().__init__(for_json=for_json, is_quiet=is_quiet)
        self._shown: set[str] = set()  # tasks whose rows were printed before the others

    def print_status_so_far(self, status: RunStatus, waiting: Sequence[str]) -> None:
        """Print the rows of the hosts that have answered, and which hosts are waited for."""
        self._print_new_rows(status, [task for task in status.tasks if task.report])
        self.print_waiting(waiting)

    def print_status(self, status: RunStatus) -> None:
        """Print the rows, except those that were printed while others were waited for."""
        self._print_new_rows(status, status.tasks)
        if status.ends_s is not None:
            self.print_text(ends_text(status.ends_s))
        self._print_notices(status)
        self._print_exposed(status)
        self.print_notes(status.slow)
        self._shown.clear()

    def _print_new_rows(self, status: RunStatus, tasks: Sequence[TaskStatus]) -> None:
        new = [task for task in tasks if str(task.placement.task) not in self._shown]
        if new and not self._shown:
            network = status.run.inventory.network
            self.print_text(f"run {status.run.id}  release {status.run.release}  network {network}")
        if new:
            self._print_task_rows(new)
        self._shown |= {str(task.placement.task) for task in new}

    def _print_task_rows(self, tasks: Sequence[TaskStatus]) -> None:
        rows = [
            {name: escape_line(text) for name, text in row.items()}
            for row in status_table.rows(tasks)
        ]
        width = self._out.rich.width if self._out.is_terminal else None
        columns = fitting_columns(COLUMNS, OPTIONAL, rows, width)
        self._out.print_table(columns, map(_with_style, rows))
        self._print_hidden(rows, hidden_columns(rows, columns))

    def _print_notices(self, status: RunStatus) -> None:
        """Print which notifications of the run's end have failed."""
        for task in status.tasks:
            if task.report and task.report.notice:
                log = f"supervisor.log of {task.placement.task} on {task.placement.host}"
                self.print_text(f"{task.report.notice} (see {log})")

    def _print_exposed(self, status: RunStatus) -> None:
        """Print the ports that the guard does not cover."""
        for task in status.tasks:
            if task.report and task.report.exposed:
                ports, name = escape_line(task.report.exposed), task.placement.task
                self.print_text(f"{name}: the guard does not cover {ports}: everybody can connect")

    def _print_hidden(self, rows: Sequence[Row], hidden: Sequence[str]) -> None:
        """Print reasons below a table without that column, and name the other hidden columns."""
        if "REASON" in hidden:
            for row in rows:
                if row["REASON"]:
                    self.print_text(f"{row['TASK']}: {row['REASON']}")
        others = [column for column in hidden if column != "REASON"]
        if others:
            self._out.print((f"hidden: {' '.join(others)} (--json has all)", "dim"))


def hidden_columns(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the columns that are not in `columns` although they have a value."""
    return [name for name in COLUMNS if name not in columns and not is_empty(rows, name)]


def _with_style(row: Row) -> dict[str, Cell]:
    return {**row, "STATE": (row["STATE"], STATE_STYLES.get(row["STATE"], "default"))}
