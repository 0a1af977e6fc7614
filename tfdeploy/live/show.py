"""Show a run that is watched: on a screen if there is one, otherwise as lines or JSON lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tfdeploy.live import plain

if TYPE_CHECKING:
    from tfdeploy.commands.watch import Samples, WatchedRun
    from tfdeploy.output.console import Console


def show(watched: WatchedRun, following: Samples, console: Console, json: bool) -> bool:
    """Show the run until it has ended or, on a terminal, until the user quits. Return whether
    Ctrl-C ended it."""
    if json:
        plain.print_documents(watched, following, console)
    elif not has_screen():
        plain.print_changes(watched, following, console)
    else:
        from tfdeploy.live.app import WatchApp

        interrupted = WatchApp(watched, following.events()).run()
        plain.print_end(watched, console)
        return bool(interrupted)
    return False


def has_screen() -> bool:
    """Return whether there is a terminal that a view can be drawn on."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb
