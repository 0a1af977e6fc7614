"""Show a run that is watched: on a screen, or in JSON lines."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from tfdeploy.commands.following.signals import restore_handlers
from tfdeploy.commands.watch import Ending
from tfdeploy.environments import installation
from tfdeploy.errors import RunError
from tfdeploy.live import summary
from tfdeploy.output.console import print_json_lines
from tfdeploy.output.watch_document import watch_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.commands.watch import WatchedRun
    from tfdeploy.hosts.following import Following
    from tfdeploy.output.console import Console

DOCUMENT_EVERY_S = 5.0
FIRST_S = 1.0  # until the first samples have arrived


def require_screen() -> None:
    """Raise RunError if the view can't be drawn: without a terminal, or without Textual."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if is_dumb or not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "tfdeploy attach prints lines, tfdeploy watch --json documents"
        raise RunError("the view of watch needs a terminal", hint)
    installation.require("watch")


def draw(
    watched: WatchedRun, following: Following, console: Console, is_over: Callable[[], bool]
) -> Ending:
    """Show the run until it has ended, until `is_over()`, or until the user quits. Return which of
    these came first; QUIT if the run has ended."""
    from tfdeploy.live.app import WatchApp

    with restore_handlers():  # those of the view are not those of the command
        ending = WatchApp(watched, following.events(), is_over=is_over).run()
    if end := summary.end_line(watched):
        console.print_text(f"run {watched.run.id} {end}")
    return ending or Ending.QUIT


def print_documents(
    watched: WatchedRun, following: Following, is_over: Callable[[], bool]
) -> Ending:
    """Print a JSON document, in one line, every DOCUMENT_EVERY_S and at the end. Return as `draw`
    does."""
    due = time.monotonic() + FIRST_S
    while not watched.has_ended and not is_over() and _take_events(watched, following, due):
        _print_document(watched)
        due = time.monotonic() + DOCUMENT_EVERY_S
    _print_document(watched)
    return Ending.OVER if is_over() else Ending.QUIT


def _take_events(watched: WatchedRun, following: Following, due: float) -> bool:
    """Take events until the time `due`; return False if the run has ended, or if no host will send
    anything more."""
    for host, event in following.events(due):
        watched.take(host, event, time.monotonic())
        if watched.has_ended or time.monotonic() >= due:
            break
    return not watched.has_ended and time.monotonic() >= due


def _print_document(watched: WatchedRun) -> None:
    print_json_lines([watch_document(watched, time.monotonic())])
