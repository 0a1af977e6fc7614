"""The command tensorboard: show the events of runs on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import WATCH, add_command
from tfdeploy.cli.options import find_runs

if TYPE_CHECKING:
    from tfdeploy.run import Run


@add_command(WATCH, "tensorboard", "tensorboard wide base", "tensorboard --port 6007", reads=True)
def tensorboard(
    runs: options.Runs = None,
    hosts: options.Hosts = options.HOSTS,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, metavar="PORT",
                    help="The port of this machine. Default: 6006, or the next one that is free.")]
    = None,
    offline: Annotated[bool, typer.Option("--offline",
                       help="Do not ask the hosts: show only what was fetched.")] = False,
) -> None:  # fmt: skip
    """Show the events of runs in TensorBoard on this machine, as their tasks write them."""
    from tfdeploy.commands.tensorboard.board import EventBoard
    from tfdeploy.environments import installation
    from tfdeploy.output.board_output import (
        print_board,
        print_events_away,
        print_starting_board,
    )
    from tfdeploy.output.console import Console
    from tfdeploy.output.run_events import print_host_back

    installation.require("tensorboard")
    found, console = find_runs(hosts, runs, offline=offline), Console()
    watcher = partial(print_events_away, console), partial(print_host_back, console)
    with EventBoard(found, *watcher, _reload, port, offline=offline) as board:
        print_starting_board(console, board)
        board.look()
        print_board(console, board, board.url())
        try:
            board.wait()
        except KeyboardInterrupt:  # the way in which it ends
            raise typer.Exit from None


def _reload(run: Run) -> Run:
    """Return a run as its last start has planned it. Raises NotTrusted: nobody can be asked."""
    from tfdeploy.run import read_folder
    from tfdeploy.trust import store

    found = read_folder(run.folder)
    store.refuse_untrusted(found.inventory, f"the record of run {found.id}", found.flags)
    return found
