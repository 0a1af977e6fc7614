"""Show a run that is watched: on a screen if there is one, otherwise as lines or JSON lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tfdeploy.commands.following.signals import restore_handlers
from tfdeploy.commands.watch import Ending
from tfdeploy.live import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.commands.watch import Samples, WatchedRun
    from tfdeploy.output.console import Console


def show(
    watched: WatchedRun,
    following: Samples,
    console: Console,
    json: bool,
    is_over: Callable[[], bool],
) -> Ending:
    """Show the run until it has ended, until `is_over()` or, on a terminal, until the user quits.
    Return which of these came first; QUIT if the run has ended."""
    ending = Ending.QUIT
    if json:
        plain.print_documents(watched, following, console, is_over)
    elif not has_screen():
        plain.print_changes(watched, following, console, is_over)
    else:
        from tfdeploy.live.app import WatchApp

        with restore_handlers():  # those of the view are not those of the command
            ending = WatchApp(watched, following.events(), is_over=is_over).run() or ending
        plain.print_end(watched, console)
    return Ending.OVER if ending is Ending.QUIT and not has_screen() and is_over() else ending


def has_screen() -> bool:
    """Return whether there is a terminal that a view can be drawn on."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb
