"""What the commands that start and follow a run show of it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

from tfdeploy.cli.command import INTERRUPTED
from tfdeploy.commands.following.run_follow import Watcher
from tfdeploy.commands.start import StartWatcher
from tfdeploy.output import plan_output, progress, results_output, run_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.commands.environments import BuildResult
    from tfdeploy.commands.following.launching import Show
    from tfdeploy.commands.plan import Intent
    from tfdeploy.commands.push import Outcome
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.output.console import Console
    from tfdeploy.shared.records import TaskReport


class ShownStart(StartWatcher):
    """Print a push and a start. Ctrl-C exits with what it has interrupted."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_sent(self, outcome: Outcome, intent: Intent) -> None:
        plan_output.print_push_result(self._console, outcome, intent)

    def on_wait(self, waiting: Sequence[str]) -> None:
        self._console.print_waiting(waiting)

    def moving(self, transfers: Transfers) -> AbstractContextManager[object]:
        return progress.show_transfers(self._console, transfers)

    def on_built(self, built: BuildResult, intent: Intent) -> None:
        plan_output.print_environments(self._console, built, intent)

    def on_notes(self, notes: Sequence[TfdeployError]) -> None:
        self._console.print_notes(notes)

    def on_report(self, host: str, report: TaskReport) -> None:
        run_events.print_report(self._console, host, report)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Exit at Ctrl-C. What had started is stopped before this sees the exception."""
        try:
            yield
        except KeyboardInterrupt:
            self._console.print_interrupted(
                "interrupted before all tasks were READY: those that had started were stopped"
            )
            raise typer.Exit(INTERRUPTED) from None

    def waiting(self) -> AbstractContextManager[Show]:
        return run_events.wait_progress(self._console)


def shown_following(console: Console) -> Watcher:
    """Return functions that print what happens to a run that is followed."""
    return Watcher(
        on_report=partial(run_events.print_report, console),
        on_lines=partial(run_events.print_followed_lines, console),
        on_lost=partial(run_events.print_host_lost, console),
        on_back=partial(run_events.print_host_back, console),
        on_collected=partial(results_output.print_new_results, console),
        on_collect_failed=partial(run_events.print_collect_failed, console),
        on_interruption=partial(run_events.print_resuming, console),
        on_resumed=partial(run_events.print_resumed, console),
    )
