"""The commands about what hosts store, and who waits for them: runs, queue, prune."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import DISK, add_command
from tfdeploy.cli.completion import propose_runs
from tfdeploy.cli.options import exit_if_failed, find_run, load_inventory, open_fleet
from tfdeploy.config.hosts_file import hosts_flag

if TYPE_CHECKING:
    from tfdeploy.errors import RunError
    from tfdeploy.output.console import Console


@add_command(DISK, "runs")
def runs(hosts: options.Hosts = options.HOSTS, json: options.Json = False) -> None:
    """Show every run that is stored on the hosts, and its disk space."""
    from tfdeploy.commands import runs as command
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.output.hosts_output import print_runs

    inventory = load_inventory(hosts)
    with Fleet(inventory) as fleet:
        project_runs = command.runs(fleet, inventory)
    print_all = partial(print_runs, flags=hosts_flag(inventory.file))
    Console(for_json=json).print_result(project_runs, print_all)
    exit_if_failed(project_runs.errors)


@add_command(DISK, "queue", "queue wide --priority high")
def queue(
    run: Annotated[str | None, typer.Argument(metavar="RUN", show_default=False,
                   help="The run to move, by its id or name: with --priority.",
                   autocompletion=propose_runs)] = None,
    priority: Annotated[options.PriorityName | None, typer.Option("--priority",
                        metavar="high|normal", help="Move RUN, which waits: high comes first.",
                        show_default=False)] = None,
    hosts: options.Hosts = options.HOSTS,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Show which runs of all users wait for GPUs and ports of the hosts, in their order."""
    from tfdeploy.commands import queue as command
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.output.hosts_output import print_queue

    if (run is None) != (priority is None):
        raise typer.BadParameter("expected RUN and --priority together, or none of them")
    if run is not None and priority is not None:
        moved = find_run(hosts, run)
        with open_fleet(moved) as fleet:
            command.move(fleet, moved, priority)
    with Fleet(load_inventory(hosts)) as fleet:
        waiting = command.list_queue(fleet)
    Console(for_json=json).print_result(waiting, print_queue)
    exit_if_failed(waiting.errors)


@add_command(DISK, "prune --dry-run", "prune --keep 2")
def prune(
    hosts: options.Hosts = options.HOSTS,
    keep: Annotated[int, typer.Option("--keep", min=0, metavar="N",
                    help="Keep the newest N runs and N releases.")] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run",
                       help="Show what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes",
                   help="Also delete results that are not on the controller.")] = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Delete old runs and releases from the hosts. Live runs and collected results stay.

    Asks before it deletes results that exist only on hosts; refuses without a terminal."""
    from tfdeploy.commands import prune as command
    from tfdeploy.commands.runs import runs as list_runs
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output import documents
    from tfdeploy.output.console import Console
    from tfdeploy.output.hosts_output import print_prune_plan, print_prune_result

    inventory = load_inventory(hosts)
    console = Console(for_json=json)
    with Fleet(inventory) as fleet:
        project_runs = list_runs(fleet, inventory)
        disks = project_runs.disks
        plan = command.choose_removals(disks, keep, keep, project_runs.errors)
        print_prune_plan(console, project_runs, plan, hosts_flag(inventory.file))
        loss = command.data_loss(command.results_only_on_hosts(disks, plan), inventory.file)
        if loss and (dry_run or yes):  # a person who agrees in advance sees the names, too
            console.print_notes([loss])
        elif loss:
            _confirm(console, loss, may_ask=not json)
        pruned = None if dry_run else command.prune(fleet, inventory.project, plan)
    print_prune_result(console, plan, pruned, project_runs.errors)
    console.print_document(documents.prune_document(project_runs, plan, pruned))
    exit_if_failed([*project_runs.errors, *(pruned.errors if pruned else ())])


def _confirm(console: Console, loss: RunError, *, may_ask: bool) -> None:
    """Ask the user at the terminal whether to delete results that are not on the controller.

    Raises `loss` if there is no terminal, or it may not be used.
    """
    if not (may_ask and sys.stdin.isatty()):
        raise loss
    console.print_error(loss)
    from tfdeploy.cli.questions import require_yes

    require_yes("delete them?", "nothing was deleted")
