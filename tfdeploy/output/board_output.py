"""What TensorBoard shows of runs, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count, format_size, shorten_names

if TYPE_CHECKING:
    from tfdeploy.commands.tensorboard.board import EventBoard
    from tfdeploy.commands.tensorboard.fetching import EventFetcher
    from tfdeploy.errors import TfdeployError
    from tfdeploy.output.console import Console


def print_starting_board(console: Console, board: EventBoard) -> None:
    runs = shorten_names(list(board.labels.values()))
    count = format_count(len(board.labels), "run")
    console.print_text(f"fetching the events of {count}, and starting TensorBoard: {runs}")


def print_board(console: Console, board: EventBoard, url: str) -> None:
    """Print the address, and of each run what there is to see."""
    for fetcher in board.fetchers:
        console.print_text(_shown_events(fetcher, board.labels[fetcher.run.id]))
    console.print_text(f"TensorBoard is at {url} for programs of this machine; Ctrl-C ends it")


def print_events_away(console: Console, error: TfdeployError) -> None:
    from tfdeploy.commands.tensorboard.fetching import shown_until

    console.print_warning(error, f"what was fetched before is shown{shown_until(error)}")


def _shown_events(fetcher: EventFetcher, label: str) -> str:
    from tfdeploy.commands.tensorboard.board import WRITERS, events_of

    sizes = events_of(fetcher.run)
    if not sizes:
        return f"run {label}: no events yet; {WRITERS}"
    return f"run {label}: {format_count(len(sizes), 'event file')}, {format_size(sum(sizes))}"
