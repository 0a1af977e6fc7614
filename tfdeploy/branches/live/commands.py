"""The commands watch and metrics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import WATCH, add_command
from tfdeploy.cli.options import exit_from_following, exit_if_failed, find_run, open_fleet
from tfdeploy.cli.streams import end_with_reader

if TYPE_CHECKING:
    from tfdeploy.branches.live.watched_run import Ending, WatchedRun
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run


@add_command(WATCH, "watch", "watch wide", "watch --json", reads=True, prints_lines=True)
def watch(
    run: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    json: Annotated[bool, typer.Option("--json",
                    help="Print JSON lines: one document every 5 seconds.")] = False,
) -> None:  # fmt: skip
    """Watch a run: tasks, CPU, memory, GPUs, training, logs. Quitting does not affect the run."""
    end_with_reader()
    from tfdeploy.branches.live.watched_run import Ending
    from tfdeploy.output.console import Console

    found, console = find_run(hosts, run or run_id), Console(for_json=json)
    watched, ending = _watch(found, console, json)
    while ending is Ending.OVER:
        found = find_run(hosts, found.id)
        console.print_text(f"run {found.id} was started again; watching it")
        watched, ending = _watch(found, console, json)
    if ending is Ending.INTERRUPTED and not watched.has_ended:
        exit_from_following(console, found)
    if watched.has_ended:
        exit_if_failed(watched.errors)
        raise typer.Exit(watched.exit_code)
    if watched.continues:
        console.print_text(f"run {found.id} continues. Next: tfdeploy attach {found.flags}")
    else:
        text = f"no host has reported how run {found.id} is. Next: tfdeploy status {found.flags}"
        console.print_text(text)
    exit_if_failed([host.error for host in watched.hosts.values() if host.gave_up and host.error])


def _watch(run: Run, console: Console, json: bool) -> tuple[WatchedRun, Ending]:
    """Watch a run as its last start has planned it."""
    from tfdeploy.branches.live.show import show
    from tfdeploy.branches.live.watched_run import (
        Ending,
        WatchedRun,
        follow_samples,
    )
    from tfdeploy.hosts.fleet import unless_deleted
    from tfdeploy.run import started_again

    watched = WatchedRun(run)

    def is_over() -> bool:
        return watched.outdated is not None or started_again(run)

    try:
        with open_fleet(run) as fleet, follow_samples(fleet, run) as following:
            ending = show(watched, following, console, json, is_over)
    except KeyboardInterrupt:
        return watched, Ending.INTERRUPTED
    if watched.outdated:
        raise watched.outdated
    unless_deleted({host.name: host.error for host in watched.hosts.values()})
    return watched, ending


@add_command(WATCH, "metrics", "metrics --port 9464", reads=True)
def metrics(
    run: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    port: Annotated[int | None, typer.Option("--port", metavar="PORT", min=1, max=65535,
                    help="Serve them at http://127.0.0.1:PORT/metrics until the run has ended.")]
        = None,
) -> None:  # fmt: skip
    """Print the metrics of a run for Prometheus: tasks, steps, losses, restarts, hosts, GPUs."""
    from tfdeploy.branches.live.metrics import once, serve
    from tfdeploy.branches.live.watched_run import WatchedRun, follow_samples
    from tfdeploy.output.console import Console

    found, console = find_run(hosts, run or run_id), Console()
    watched = WatchedRun(found)
    try:
        with open_fleet(found) as fleet, follow_samples(fleet, found) as following:
            if port is None:
                sys.stdout.write(once(watched, following))
            else:
                console.print_text(f"http://127.0.0.1:{port}/metrics has the metrics of {found.id}")
                serve(watched, following, port)
    except KeyboardInterrupt:  # the way in which it ends
        raise typer.Exit from None
    exit_if_failed(watched.errors)
