"""Show a run that is watched: on a screen if there is one. Otherwise a line for each change and one
about the training every 10 s, or JSON lines."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from tfdeploy.branches.live import summary
from tfdeploy.branches.live.document import watch_document
from tfdeploy.branches.live.watched_run import Ending
from tfdeploy.commands.signals import restore_handlers
from tfdeploy.environments import installation
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.output.console import print_json_lines
from tfdeploy.output.run_events import print_host_back, print_host_lost, print_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.branches.live.watched_run import WatchedRun
    from tfdeploy.errors import HostError
    from tfdeploy.hosts.following import Following
    from tfdeploy.output.console import Console
    from tfdeploy.shared.protocol.reports import HostSample

TRAINING_EVERY_S = 10.0
DOCUMENT_EVERY_S = 5.0
FIRST_S = 1.0  # until the first samples have arrived


def show(
    watched: WatchedRun,
    following: Following,
    console: Console,
    json: bool,
    is_over: Callable[[], bool],
) -> Ending:
    """Show the run until it has ended, until `is_over()` or, on a terminal, until the user quits.
    Return which of these came first; QUIT if the run has ended."""
    if not json and has_screen(console):
        from tfdeploy.branches.live.app import WatchApp

        with restore_handlers():  # those of the view are not those of the command
            ending = WatchApp(watched, following.events(), is_over=is_over).run()
        print_end(watched, console)
        return ending or Ending.QUIT
    print_ = print_documents if json else print_changes
    print_(watched, following, console, is_over)
    return Ending.OVER if is_over() else Ending.QUIT


def has_screen(console: Console) -> bool:
    """Return whether the view can be drawn: on a terminal, with Textual. If only Textual is
    missing, print how to install it."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if is_dumb or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    missing = installation.find_missing("watch")
    console.print_notes([missing] if missing else [])
    return missing is None


def print_changes(
    watched: WatchedRun, following: Following, console: Console, is_over: Callable[[], bool]
) -> None:
    """Print what changes until the run has ended, and then how, or until `is_over()`."""
    printed, named = "", set[str]()
    for is_last in _periods(watched, following, TRAINING_EVERY_S, console, is_over):
        line = "  ".join(summary.training_parts(watched, time.monotonic()))
        if line != printed and not is_last:
            console.print_text(line)
            printed = line
        about = {each.host for each in watched.slow}
        console.print_notes([each for each in watched.slow if each.host not in named])
        named = about
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
            print_report(self._console, host, use.report)

    def on_error(self, error: HostError) -> None:
        if may_return(error):
            print_host_lost(self._console, error)

    def on_back(self, host: str) -> None:
        print_host_back(self._console, host)
