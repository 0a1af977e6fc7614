"""Show files on their way while they move: in place on a terminal, else lines every few seconds."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console as RichConsole
    from rich.spinner import Spinner

    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.output.console import Console

LINE_S = 5.0
FRAMES_PER_S = 4
IDLE = "querying the hosts"


def show_transfers(
    console: Console, transfers: Transfers, *, beside_events: bool = False
) -> AbstractContextManager[None]:
    """Return a context that shows running transfers. `beside_events`: log lines and events are
    printed meanwhile, so nothing is redrawn in place."""
    stream = console.progress_stream
    if stream.is_terminal and not beside_events:
        return in_place(stream.rich, transfers)

    def print_line(line: str) -> None:
        if not console.is_quiet:
            with console.lock:
                console.err.print(line)

    return in_lines(print_line, transfers, notes=not beside_events)


@contextmanager
def in_place(console: RichConsole, transfers: Transfers) -> Iterator[None]:
    """Redraw the running transfers on a terminal; erase them when the context ends."""
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def render() -> Spinner:
        text = Text("\n  ".join(map(escape_line, transfers.lines() or [IDLE])), no_wrap=True)
        text.overflow = "ellipsis"
        spinner.update(text=text)
        return spinner

    with Live(
        get_renderable=render,
        console=console,
        transient=True,
        refresh_per_second=FRAMES_PER_S,
        redirect_stdout=not console.stderr,  # else stdout is a file, or another program reads it
    ):
        yield


@contextmanager
def in_lines(
    print_line: Callable[[str], None],
    transfers: Transfers,
    *,
    notes: bool = True,
    every_s: float = LINE_S,
) -> Iterator[None]:
    """Print the running transfers every `every_s` seconds, if they have changed; `notes`: also
    those that move no bytes yet. A transfer that takes less prints nothing."""
    ended = threading.Event()

    def print_changes() -> None:
        previous: list[str] = []
        while not ended.wait(every_s):
            lines = transfers.lines(notes=notes)
            for line in lines:
                if line not in previous:
                    print_line(line)
            previous = lines

    thread = threading.Thread(target=print_changes, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
