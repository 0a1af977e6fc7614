"""Standard output and standard error, and the few ways in which text is printed to them.

Text from hosts (log lines, reasons) is data: its control characters are printed as visible escapes,
so they never act on the terminal.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from tfdeploy.agent.records import BACKOFF, FAILED, LOST, READY, STOPPED, SUCCEEDED
from tfdeploy.errors import FleetError
from tfdeploy.formatting.humanize import escape_control

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.errors import TfdeployError

STATE_STYLES = {
    READY: "green", SUCCEEDED: "green", FAILED: "bold red", LOST: "bold red", STOPPED: "dim",
    BACKOFF: "yellow",
}  # fmt: skip
MAX_TABLE_WIDTH = 500


class Terminal:
    """Both streams. With `for_json`, standard output belongs to one JSON document, and text goes to
    standard error. If `is_quiet`, which is set for the whole process, only results, warnings and
    errors are printed: no steps on the way, and no progress."""

    is_quiet: ClassVar[bool] = False

    def __init__(self, *, for_json: bool = False) -> None:
        self._out = RichConsole(stderr=for_json, highlight=False, soft_wrap=True, emoji=False)
        self._err = RichConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self._lock = threading.RLock()  # batches of events are printed by threads of their own

    def flush(self) -> None:
        """Print what waits to be printed in a batch. This class has nothing that waits."""

    def print_text(self, text: str) -> None:
        self.flush()
        self._out.out(escape_control(text), highlight=False)

    def print_step(self, text: str) -> None:
        """Print what is going on, unless only the result is wanted."""
        if not self.is_quiet:
            self.print_text(text)

    def print_error(self, error: TfdeployError) -> None:
        """Print what was found, what was expected and what to type next."""
        self._print_problem("error: ", "bold red", error)

    def print_notes(self, notes: Sequence[TfdeployError]) -> None:
        """Print what may matter and prevents nothing."""
        if notes:
            self._print_problem("note: ", "yellow", FleetError(notes))

    def print_interrupted(self, text: str) -> None:
        self.flush()
        self._err.print(f"\n{escape(text)}")

    @property
    def _progress_stream(self) -> RichConsole:
        """Where progress is shown: on the terminal if there is one, never in a file of results."""
        if self.is_quiet:
            return RichConsole(quiet=True)
        return self._out if self._out.is_terminal else self._err

    def _spinner(self, text: str) -> AbstractContextManager[object]:
        """Return a context that shows `text` beside a spinner, on a terminal only."""
        is_shown = self._err.is_terminal and not self.is_quiet
        return self._err.status(escape(text)) if is_shown else nullcontext()

    def _print_problem(self, label: str, style: str, error: TfdeployError) -> None:
        self.flush()
        first, *rest = str(error).splitlines() or [""]
        with self._lock:
            self._err.out(label, style=style, end="", highlight=False)
            for line in (first, *rest):
                self._err.out(escape_control(line), highlight=False)

    def _print_warning(self, error: TfdeployError, next_step: str) -> None:
        self._err.print(f"[yellow]{escape(escape_control(str(error)))}\n{escape(next_step)}[/]")

    def _print_table(self, table: Table) -> None:
        """Print the table at its own width, whatever the terminal's: a cut name can't be copied."""
        options = self._out.options.update(max_width=MAX_TABLE_WIDTH)
        table.width = Measurement.get(self._out, options, table).maximum
        self._out.print(table, width=table.width, crop=False)


def new_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table
