"""What the commands that start and follow a run show of it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

from tfdeploy.cli.command import INTERRUPTED
from tfdeploy.commands.intent import StartWatcher
from tfdeploy.commands.running.follow import Watcher
from tfdeploy.output import plan_output, progress, results_output, run_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.output.console import Console


START_INTERRUPTED = "interrupted before all tasks were READY: those that had started were stopped"


def shown_start(console: Console, interrupted: str = START_INTERRUPTED) -> StartWatcher:
    """Return functions that print a push and a start. Ctrl-C exits with the text `interrupted`."""
    return StartWatcher(
        moving=partial(progress.show_transfers, console),
        on_wait=console.print_waiting,
        on_sent=partial(plan_output.print_push_result, console),
        on_built=partial(plan_output.print_environments, console),
        on_notes=console.print_notes,
        on_report=partial(run_events.print_start_report, console),
        starting=partial(_exit_at_ctrl_c, console, interrupted),
        waiting=partial(run_events.wait_progress, console),
    )


@contextmanager
def _exit_at_ctrl_c(console: Console, interrupted: str) -> Iterator[None]:
    """What had started is stopped before this sees the exception."""
    try:
        yield
    except KeyboardInterrupt:
        console.print_interrupted(interrupted)
        raise typer.Exit(INTERRUPTED) from None


def shown_following(console: Console) -> Watcher:
    """Return functions that print what happens to a run that is followed."""
    return Watcher(
        on_report=partial(run_events.print_report, console),
        on_lines=partial(run_events.print_followed_lines, console),
        on_notes=console.print_notes,
        on_lost=partial(run_events.print_host_lost, console),
        on_back=partial(run_events.print_host_back, console),
        on_collected=partial(results_output.print_new_results, console),
        on_collect_failed=partial(run_events.print_collect_failed, console),
        on_interruption=partial(run_events.print_resuming, console),
        on_resumed=partial(run_events.print_resumed, console),
        waiting=partial(run_events.wait_progress, console),
    )
