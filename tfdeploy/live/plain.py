"""Watch a run without a terminal: a line for each change, and one about the training every 10 s; or
JSON lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.errors import HostError
from tfdeploy.hosts.streams.following import HostIsBack, may_return
from tfdeploy.live import summary
from tfdeploy.output.console import print_json_lines
from tfdeploy.output.watch_document import watch_document
from tfdeploy.shared.protocol.watching import HostSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.commands.watch import Event, Samples, WatchedRun
    from tfdeploy.output.console import Console

TRAINING_EVERY_S = 10.0
DOCUMENT_EVERY_S = 5.0
FIRST_S = 1.0  # until the first samples have arrived


def print_changes(
    watched: WatchedRun, following: Samples, console: Console, is_over: Callable[[], bool]
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
    watched: WatchedRun, following: Samples, console: Console, is_over: Callable[[], bool]
) -> None:
    """Print a JSON document, in one line, every DOCUMENT_EVERY_S and at the end."""
    for _ in _periods(watched, following, DOCUMENT_EVERY_S, console, is_over):
        print_json_lines([watch_document(watched, time.monotonic())])


def _periods(
    watched: WatchedRun,
    following: Samples,
    every_s: float,
    console: Console,
    is_over: Callable[[], bool],
) -> Iterator[bool]:
    """Take events; yield False after each `every_s` seconds, and True at the end."""
    due = time.monotonic() + FIRST_S
    while not watched.has_ended:
        over = True
        for host, event in following.events(due):
            over = False
            watched.take(host, event, time.monotonic())
            _print_event(host, event, console)
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


def _print_event(host: str, event: Event, console: Console) -> None:
    if isinstance(event, HostSample):
        for use in event.tasks:
            console.print_report(host, use.report)
    elif isinstance(event, HostIsBack):
        console.print_host_back(host)
    elif isinstance(event, HostError) and may_return(event):
        console.print_host_lost(event)
