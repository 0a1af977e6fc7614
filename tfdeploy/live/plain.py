"""Watch a run without a terminal: a line for each change, and one about the training every 10 s; or
JSON lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.live import summary
from tfdeploy.output.console import print_json_lines
from tfdeploy.output.watch_document import watch_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.commands.watch import WatchedRun
    from tfdeploy.errors import HostError
    from tfdeploy.hosts.following import Following
    from tfdeploy.output.console import Console
    from tfdeploy.shared.protocol.reports import HostSample

TRAINING_EVERY_S = 10.0
DOCUMENT_EVERY_S = 5.0
FIRST_S = 1.0  # until the first samples have arrived


def print_changes(
    watched: WatchedRun, following: Following, console: Console, is_over: Callable[[], bool]
) -> None:
    """Print what changes until the run has ended, and then how, or until `is_over()`."""
    printed = ""
    for is_last in _periods(watched, following, TRAINING_EVERY_S, console, is_over):
        line = "  ".join(summary.training_parts(watched, time.monotonic()))
        if line != printed and not is_last:
            console.print_text(line)
            printed = line
    print_end(watched, console)


def print_end(watched: WatchedRun, console: Console) -> None:
    """Print how the run ended, if it has."""
    end = summary.end_line(watched)
    if end:
        console.print_text(f"run {watched.run.id} {end}")


def print_documents(
    watched: WatchedRun, following: Following, console: Console, is_over: Callable[[], bool]
) -> None:
    """Print a JSON document, in one line, every DOCUMENT_EVERY_S and at the end."""
    for _ in _periods(watched, following, DOCUMENT_EVERY_S, console, is_over):
        print_json_lines([watch_document(watched, time.monotonic())])


def _periods(
    watched: WatchedRun,
    following: Following,
    every_s: float,
    console: Console,
    is_over: Callable[[], bool],
) -> Iterator[bool]:
    """Take events; yield False after each `every_s` seconds, and True at the end."""
    due, printer = time.monotonic() + FIRST_S, _Printer(console)
    while not watched.has_ended:
        over = True
        for host, event in following.events(due):
            over = False
            watched.take(host, event, time.monotonic())
            printer.dispatch(host, event)
            if watched.has_ended or time.monotonic() >= due:
                break
        if over and time.monotonic() < due:  # no host will send anything more
            break
        if not watched.has_ended and time.monotonic() >= due:
            if is_over():
                break
            yield False
            due = time.monotonic() + every_s
    yield True


class _Printer(Listener):
    """Prints what happens to tasks and hosts."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_sample(self, host: str, sample: HostSample) -> None:
        for use in sample.tasks:
            self._console.print_report(host, use.report)

    def on_error(self, error: HostError) -> None:
        if may_return(error):
            self._console.print_host_lost(error)

    def on_back(self, host: str) -> None:
        self._console.print_host_back(host)
