"""The commands about one run: status, logs, collect, fetch, stop."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import RESULTS, TRAIN, WATCH, add_command
from tfdeploy.cli.completion import propose_tasks
from tfdeploy.cli.options import (
    exit_from_following,
    exit_if_failed,
    exit_interrupted,
    find_run,
    load_inventory,
    open_fleet,
    take_newer_record,
)
from tfdeploy.cli.streams import end_with_reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.commands.logs import NewLines
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.errors import OutdatedRecord
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run


@add_command(WATCH, "status", "status --task worker --on gpu-[01-04]", reads=True)
def status(
    named: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    task: options.Tasks = None,
    on: options.OnHosts = None,
    exit_code: Annotated[bool, typer.Option("--exit-code",
                         help="Exit with 0 if all tasks are READY and train, or the run succeeded; "
                         "with 3 if it ended in any other way; with 1 otherwise.")] = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Show every task of a run: host, port, GPUs, pid, state, health."""
    from tfdeploy.commands import status as command
    from tfdeploy.output.console import Console
    from tfdeploy.output.status_output import print_status, print_status_so_far

    if exit_code and (task or on):
        raise typer.BadParameter("--exit-code is about the whole run: leave out --task and --on")
    run, console = find_run(hosts, named or run_id), Console(for_json=json)

    def on_wait(so_far: command.RunStatus, waiting: list[str]) -> None:
        if json:
            console.print_waiting(waiting)
        else:
            print_status_so_far(console, so_far, waiting)

    with open_fleet(run) as fleet:
        run_status = command.status(fleet, run, tasks=task or (), on=on or (), on_wait=on_wait)
    console.print_result(run_status, print_status)
    exit_if_failed(run_status.errors)
    if exit_code:
        raise typer.Exit(run_status.exit_code)


@add_command(
    WATCH,
    "logs -f",
    "logs worker:[0-3] ps:0 -n 20",
    "logs --on gpu-03",
    "logs --grep 'Error|nan' -n 20",
    reads=True,
    prints_lines=True,
)
def logs(
    tasks: options.TaskArguments = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    task: options.Tasks = None,
    on: options.OnHosts = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the logs as they grow.")]
    = False,
    lines: Annotated[int | None, typer.Option("-n", "--lines", "--tail", min=0, metavar="N",
                     help="Start with the last N lines of each task. Default: all lines.")] = None,
    grep: Annotated[str, typer.Option("--grep", metavar="PATTERN",
                    help="Only lines that this regular expression matches. Hosts select them.",
                    show_default=False)] = "",
    json: options.JsonLines = False,
) -> None:  # fmt: skip
    """Show the tasks' logs, merged. Ctrl-C stops following; the run continues."""
    end_with_reader()
    from tfdeploy.cli.watchers import shown_following
    from tfdeploy.commands import logs as command
    from tfdeploy.output.console import Console

    run = find_run(hosts, run_id)
    console = Console(for_json=json)
    watcher = shown_following(console)
    try:
        with open_fleet(run) as fleet, closing(
            command.logs(
                fleet, run, [*(tasks or ()), *(task or ())], lines=lines, grep=grep, follow=follow,
                on=on or (), on_lost=watcher.on_lost, on_back=watcher.on_back,
            )
        ) as logged:  # fmt: skip
            _print_lines(logged, console, json=json)
    except KeyboardInterrupt:
        exit_from_following(console, run)


def _print_lines(logged: Iterable[NewLines], console: Console, *, json: bool) -> None:
    from tfdeploy.output.console import print_json_lines
    from tfdeploy.output.log_lines import print_log_lines

    for new in logged:
        if json:
            print_json_lines(new.plain())
        else:
            print_log_lines(console, new.task, new.host, new.lines)


@add_command(RESULTS, "collect", "collect --all", "collect --task worker:1", reads=True)
def collect(
    named: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    task: options.Tasks = None,
    on: options.OnHosts = None,
    every: Annotated[bool, typer.Option("--all",
                     help="Fetch every checkpoint, not only the newest.")] = False,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Fetch the chief's newest checkpoint, outputs, events and all logs into runs/<run>/."""
    from tfdeploy.commands import collect as command
    from tfdeploy.output.progress import show_transfers
    from tfdeploy.output.results_output import print_collected

    run = find_run(hosts, named or run_id)
    console = shown.console()
    with open_fleet(run) as fleet, show_transfers(console, fleet.transfers):
        collected = command.collect_reachable(
            fleet, run, every=every, tasks=task or (), on=on or ()
        )
    print_collected(console, collected)
    console.print_document(collected)
    exit_if_failed(collected.errors)


@add_command(RESULTS, "fetch worker:1 tuner.csv", "fetch worker logs/ --on gpu-[01-04]", reads=True)
def fetch(
    task: Annotated[str, typer.Argument(metavar="TASK", help=options.TASK_HELP,
                    autocompletion=propose_tasks)],
    paths: Annotated[list[str], typer.Argument(metavar="PATH",
                     help="Files or folders in the task's directory, or absolute paths on its "
                     "host.")],
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    on: options.OnHosts = None,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Fetch any file or folder of a task into runs/<run>/fetched/<task>/."""
    from tfdeploy.commands import fetch as command
    from tfdeploy.output.progress import show_transfers
    from tfdeploy.output.results_output import print_fetched

    run = find_run(hosts, run_id)
    console = shown.console()
    with open_fleet(run) as fleet, show_transfers(console, fleet.transfers):
        fetched = command.fetch(fleet, run, task, paths, on or ())
    print_fetched(console, fetched)
    console.print_document(fetched)
    exit_if_failed(fetched.errors)
    raise typer.Exit(1 if fetched.skipped else 0)


@add_command(TRAIN, "stop", "stop --run 20260501-101500-3f2a")
def stop(
    named: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    json: options.Json = False,
) -> None:
    """Stop every process of a run. Logs and checkpoints stay on the hosts."""
    from tfdeploy.errors import OutdatedRecord
    from tfdeploy.output.console import Console
    from tfdeploy.output.run_events import print_stopped

    run = find_run(hosts, named or run_id)
    console = Console(for_json=json)
    try:
        try:
            stopped = _stop(run, open_fleet(run), console)
        except OutdatedRecord as outdated:
            stopped = _stop_by_own_record(run, outdated, console)
        print_stopped(console, run, stopped)
        console.print_document(stopped)
        exit_if_failed(stopped.errors)
    except KeyboardInterrupt:
        exit_interrupted(console, run, "interrupted before all tasks had stopped. Next:", ("stop",))


def _stop(run: Run, fleet: Fleet, console: Console) -> StopResult:
    from tfdeploy.commands.stop import stop_everywhere
    from tfdeploy.output.run_events import print_stopped_so_far

    current = partial(load_inventory, run.inventory.file)
    with fleet:
        return stop_everywhere(fleet, run, current, partial(print_stopped_so_far, console))


def _stop_by_own_record(run: Run, outdated: OutdatedRecord, console: Console) -> StopResult:
    """Stop by the controller's own record if the newer one is not believed, as after a resume
    elsewhere that failed half way; this is among the errors. Raises `outdated` if it is."""
    from tfdeploy.errors import NewerRun, RunError
    from tfdeploy.hosts.fleet import Fleet

    try:
        take_newer_record(outdated)
    except RunError as differing:
        if isinstance(outdated, NewerRun):  # the run may not be the one that the user means
            raise
        stopped = _stop(run, Fleet(run.inventory, version=run.agent), console)
        return replace(stopped, errors=(*stopped.errors, differing))
    raise outdated
