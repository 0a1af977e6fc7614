"""Draw how far a push is on a terminal: a bar for each host, or one line for many hosts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
from rich.text import Text

from tfdeploy.output.progress.push import PushProgress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Task

    from tfdeploy.output.progress.push import Needs

MAX_BARS = 12  # more hosts than these share one line
BAR_WIDTH = 16


@contextmanager
def show(console: Console, needs: Needs) -> Iterator[PushProgress]:
    """Draw the progress on a terminal until the context ends, then erase it."""
    if len(needs) > MAX_BARS:
        progress = PushProgress(needs)
        with Live(
            get_renderable=lambda: _cut(progress.line), console=console, transient=True,
            redirect_stdout=not console.stderr,
        ):  # fmt: skip
            yield progress
    else:
        with _progress_in_bars(console, needs) as progress:
            yield progress


@contextmanager
def _progress_in_bars(console: Console, needs: Needs) -> Iterator[PushProgress]:
    def update(host: str) -> None:
        transfer = progress.hosts[host]
        completed = transfer.there / transfer.total if transfer.total else 1.0
        display.update(bars[host], completed=completed)

    progress = PushProgress(needs, update)
    columns = (TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TaskProgressColumn())
    with Progress(
        *columns, _HostTextColumn(progress), console=console, transient=True,
        redirect_stdout=not console.stderr,
    ) as display:  # fmt: skip
        bars = {host: display.add_task(host, total=1.0) for host in needs}
        yield progress


class _HostTextColumn(ProgressColumn):
    """Computed at each redraw, not at each report: the rate of a transfer that hangs drops to 0."""

    def __init__(self, progress: PushProgress) -> None:
        super().__init__()
        self._push_progress = progress

    def render(self, task: Task) -> Text:
        return Text(self._push_progress.host_text(task.description))


def _cut(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ellipsis")
