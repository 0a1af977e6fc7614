"""The live view on a terminal: tasks by host above, the newest log lines of one task below."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.widgets import RichLog, Static

from tfdeploy.branches.live import rows as live_rows
from tfdeploy.branches.live import summary
from tfdeploy.branches.live.rows import STATE, Row, layout
from tfdeploy.branches.live.watched_run import Ending
from tfdeploy.formatting.humanize import format_count
from tfdeploy.formatting.known_messages import NoiseFolder
from tfdeploy.output.log_lines import coloured
from tfdeploy.output.status_table import STATE_STYLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tfdeploy.branches.live.watched_run import WatchedRun
    from tfdeploy.hosts.events import Event

REFRESH_S = 0.5
MAX_SLOW = 3  # notes about what is slow: the table and the log need room
LINES_AROUND = 4  # the run's two lines, the log's title and the keys
BAD_STYLES = {live_rows.AWAY: "bold red", "FROZEN": "bold red", "STALLED": "yellow"}
KEYS_AT_END = "arrows or 1-9: task   PgUp/PgDn: scroll   q: quit"
KEYS = f"{KEYS_AT_END}, the run continues"


class WatchApp(App[Ending]):
    """Show a run until the user quits, or until `is_over()`. Returns which of these came first.

    `events` are those of a Following; a thread takes them until the application has ended.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Static { height: auto; width: 100%; }
    #tasks, #title, #keys { text-wrap: nowrap; text-overflow: ellipsis; }
    #log { height: 1fr; background: ansi_default; color: ansi_default; scrollbar-size: 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(False)", priority=True),
        Binding("ctrl+c", "leave(True)", priority=True),
        Binding("up", "select(-1)", priority=True),
        Binding("down", "select(1)", priority=True),
        Binding("left", "select_alike(-1)", priority=True),
        Binding("right", "select_alike(1)", priority=True),
        Binding("pageup", "scroll(-1)", priority=True),
        Binding("pagedown", "scroll(1)", priority=True),
        Binding("end", "scroll(0)", priority=True),
        *(Binding(str(number), f"choose({number - 1})", priority=True) for number in range(1, 10)),
    ]

    def __init__(
        self,
        watched: WatchedRun,
        events: Iterable[tuple[str, Event]],
        clock: Callable[[], float] = time.monotonic,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(ansi_color=True)
        self._watched, self._events, self._clock = watched, events, clock
        self._is_over = is_over
        self._selected = str(watched.run.plan.chief.task)
        self._rows: list[Row] = []
        self._shown = ("", 0)  # the task whose log is shown, and how many of its lines
        self._noise: NoiseFolder[str] = NoiseFolder(time.monotonic)

    def compose(self) -> ComposeResult:
        yield Static(id="run")
        yield Static(id="training")
        yield Static(id="tasks")
        yield Static(id="title")
        yield RichLog(id="log", max_lines=1000, wrap=False)
        yield Static(id="keys")

    def on_mount(self) -> None:
        self.query_one("#log", RichLog).can_focus = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(number, self.action_leave, True)
        threading.Thread(target=self._receive, daemon=True).start()
        self.set_interval(REFRESH_S, self._refresh_or_leave)
        self.call_after_refresh(self.refresh_view)

    def on_resize(self) -> None:
        self.refresh_view()

    # Keys

    def action_leave(self, interrupted: bool) -> None:
        self.exit(Ending.INTERRUPTED if interrupted else Ending.QUIT)

    def action_select(self, move: int) -> None:
        """Show the log of the first task of the row above or below."""
        rows = self._task_rows
        found = [number for number, tasks in enumerate(rows) if self._selected in tasks]
        number = found[0] + move if found else 0
        if rows:
            self._select(rows[max(0, min(len(rows) - 1, number))][0])

    def action_select_alike(self, move: int) -> None:
        """Show the log of the task before or after this one in the same row."""
        for tasks in self._task_rows:
            if self._selected in tasks:
                index = tasks.index(self._selected) + move
                self._select(tasks[max(0, min(len(tasks) - 1, index))])

    def action_choose(self, index: int) -> None:
        if index < len(self._task_rows):
            self._select(self._task_rows[index][0])

    def action_scroll(self, pages: int) -> None:
        """Scroll the log by a page, or with 0 to its end, where new lines are followed."""
        log = self.query_one("#log", RichLog)
        if pages == 0:
            log.scroll_end(animate=False)
        else:
            log.scroll_relative(y=pages * max(1, log.size.height - 1), animate=False)

    def _select(self, task: str) -> None:
        self._selected = task
        self.refresh_view()

    @property
    def _task_rows(self) -> list[tuple[str, ...]]:
        return [row.tasks for row in self._rows if row.tasks]

    # Events

    def _receive(self) -> None:
        for host, event in self._events:
            with suppress(RuntimeError):  # the application has just ended
                self.call_from_thread(self._watched.take, host, event, self._clock())
            if not self.is_running:
                return

    # The view

    def _refresh_or_leave(self) -> None:
        if self._is_over():
            self.exit(Ending.OVER)
        else:
            self.refresh_view()

    def refresh_view(self) -> None:
        """Show what is known now."""
        if not self.query("#keys"):  # a resize may come before the first view, or after the last
            return
        width, height = self.size
        now = self._clock()
        limit = max(3, (height - LINES_AROUND) // 2)
        self._rows = live_rows.rows(self._watched, now, limit)
        self._show("run", Text(summary.run_line(self._watched), style="bold"))
        self._show("training", self._training(now, width))
        self._show("tasks", self._table(width))
        self._show("title", self._title(width))
        self._show("keys", Text(KEYS_AT_END if self._watched.has_ended else KEYS, style="reverse"))
        self._show_log()

    def _show(self, name: str, text: Text) -> None:
        self.query_one(f"#{name}", Static).update(text)

    def _training(self, now: float, width: int) -> Text:
        text = Text(summary.fit(summary.training_parts(self._watched, now), width))
        slow = [*map(str, self._watched.slow)]
        more = [format_count(len(slow) - MAX_SLOW, "more note")] if len(slow) > MAX_SLOW else []
        for note in [*slow[:MAX_SLOW], *more]:
            text.append(f"\n{note}", "yellow")
        end = summary.end_line(self._watched)
        if end:
            style = "bold green" if self._watched.exit_code == 0 else "bold red"
            text.append(f"\n{end}" if text else end, style)
        return text

    def _table(self, width: int) -> Text:
        header, *lines = layout(self._rows, width - 2)
        text = Text().append("  " + "  ".join(header).rstrip(), style="bold")
        for row, cells in zip(self._rows, lines, strict=True):
            text.append("\n").append(_row_text(row, cells, self._selected in row.tasks))
        return text

    def _title(self, width: int) -> Text:
        placement = self._watched.tasks[self._selected].placement
        name = f"── {self._selected} on {placement.host}, log "
        return Text(name.ljust(width, "─"))

    def _show_log(self) -> None:
        """Add the new lines of the selected task's log, or show another task's."""
        log, task = self.query_one("#log", RichLog), self._watched.tasks[self._selected]
        name, count = self._shown
        follows = log.is_vertical_scroll_end
        if name != self._selected:
            log.clear()
            count, follows, self._noise = 0, True, NoiseFolder(time.monotonic)
        new = task.lines - count
        for line in list(task.log)[-new:] if new > 0 else ():
            shown = self._noise.fold(self._selected, line)
            if shown is not None:
                log.write(coloured(shown), scroll_end=follows)
        self._shown = (self._selected, task.lines)


def _row_text(row: Row, cells: list[str], is_selected: bool) -> Text:
    text = Text("▸ " if is_selected else "  ", "dim" if row.is_old else "")
    state = row.cells[STATE]
    style = BAD_STYLES.get(state) or STATE_STYLES.get(state, "")
    for number, cell in enumerate(cells):
        # The state is the only cell with a colour; STOPPED is not dimmed, as on some terminals
        # dim text cannot be read.
        is_state = bool(state) and cell.strip() == state and not row.is_old
        text.append(cell, "" if not is_state or style == "dim" else style)
        text.append("  " if number < len(cells) - 1 else "")
    if row.note:
        text.append(f"\n    {row.note}", "yellow" if row.is_bad and not row.is_old else "")
    return text
