"""The commands that continue a run in another form: resume, scale."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import TRAIN, add_command
from tfdeploy.cli.completion import propose_hosts
from tfdeploy.cli.options import find_run, load_inventory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.commands.resume import Changes
    from tfdeploy.run import Run


@add_command(
    TRAIN, "resume", "resume --without gpu-03", "resume --with workers=8", "resume --wait 1h"
)
def resume(
    run: options.RunArgument = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="HOST",
                       help="A host that is gone, or several: gpu-[01-04]. Spare hosts replace "
                       "them, or else the other hosts do.",
                       autocompletion=propose_hosts)] = None,
    counts: options.With = None,
    on: options.On = None,
    when: options.When = options.WHEN,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Resume a run that was lost or stopped from its newest checkpoint."""
    from tfdeploy.cli.watchers import shown_start
    from tfdeploy.commands import resume as command
    from tfdeploy.config.overrides import with_shared_gpus
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.output.progress import show_transfers
    from tfdeploy.output.run_events import print_queued, print_resumed, print_resumes_from

    place = when.place()
    lost_run = find_run(hosts, run or run_id)
    if when.share_gpus:
        lost_run = replace(lost_run, inventory=with_shared_gpus(lost_run.inventory))
    changes = _changes(lost_run, hosts, counts, "--with", on, without)
    console, transfers = shown.console(), Transfers()
    watcher = shown_start(console, _interrupted(lost_run))
    with watcher.starting(), show_transfers(console, transfers):
        resumed = command.resume(
            lost_run, changes, watcher.on_report, transfers, queue=place, waiting=watcher.waiting
        )
    if when.queue:
        print_resumes_from(console, resumed)
        print_queued(console, resumed.run)
    else:
        print_resumed(console, resumed)
    console.print_document(resumed)


@add_command(TRAIN, "scale workers=8", "scale ps=2,workers=16 --on gpu-[05-08]")
def scale(
    counts: Annotated[list[str], typer.Argument(metavar="JOB=COUNT", show_default=False,
                      help="The numbers of tasks that the run continues with: ps=2,workers=8.")],
    on: options.On = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Stop a live run, and continue it with other numbers of tasks from its newest checkpoint."""
    from tfdeploy.cli.watchers import shown_start
    from tfdeploy.commands import scale as command
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.output.progress import show_transfers
    from tfdeploy.output.run_events import print_scaled

    run = find_run(hosts, run_id)
    changes = _changes(run, hosts, counts, "scale", on)
    console, transfers = shown.console(), Transfers()
    watcher = shown_start(console, _interrupted(run))
    with watcher.starting(), show_transfers(console, transfers):
        scaled = command.scale(run, changes, watcher.on_report, transfers)
    print_scaled(console, scaled)
    console.print_document(scaled)


def _interrupted(run: Run) -> str:
    """Return what Ctrl-C says: nothing was stopped yet, or tasks were, and perhaps not all."""
    return (
        f"interrupted: run {run.id} is as it was, or stopped, perhaps in part: tfdeploy status "
        f"{run.flags} shows it, tfdeploy resume {run.flags} continues it"
    )


def _changes(
    run: Run,
    hosts: Path,
    counts: Sequence[str] | None,
    flag: str,
    on: Sequence[str] | None,
    without: Sequence[str] | None = None,
) -> Changes:
    from tfdeploy.commands.resume import Changes
    from tfdeploy.commands.scale import hosts_for
    from tfdeploy.config.overrides import parse_counts

    if on and not counts:
        raise typer.BadParameter("--on: expected it together with --with, such as --with workers=8")
    chosen = hosts_for(run, on or (), lambda: load_inventory(hosts))
    return Changes(tuple(without or ()), parse_counts(counts or (), flag), tuple(chosen))
