"""Show a run that is watched: on a screen if there is one, otherwise as lines or JSON lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tfdeploy.commands.following.signals import restore_handlers
from tfdeploy.commands.watch import Ending
from tfdeploy.environments import installation
from tfdeploy.live import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.commands.watch import WatchedRun
    from tfdeploy.hosts.following import Following
    from tfdeploy.output.console import Console


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
        from tfdeploy.live.app import WatchApp

        with restore_handlers():  # those of the view are not those of the command
            ending = WatchApp(watched, following.events(), is_over=is_over).run()
        plain.print_end(watched, console)
        return ending or Ending.QUIT
    print_ = plain.print_documents if json else plain.print_changes
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
