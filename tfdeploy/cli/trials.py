"""The command `trials`: start many trainings with other parameters, or show how they go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import TRAIN, add_command
from tfdeploy.cli.options import (
    exit_from_following,
    exit_if_failed,
    find_run,
    load_inventory,
    load_to_plan,
    make_intent,
    open_fleet,
)

if TYPE_CHECKING:
    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.running.follow import RunEnd
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run


@add_command(
    TRAIN,
    "trials --param lr=0.1,0.01 --param batch=32,64 --objective val_accuracy:max -- --epochs 5",
    "trials --param lr=1e-4..0.1:log --random 20",
    "trials                  # how the newest run's trials are",
)
def trials(
    given: options.ForRun = options.FOR_RUN,
    search: options.Search = options.SEARCH,
    objective: Annotated[str | None, typer.Option("--objective", metavar="NAME:max|min",
                         help="The scalar that says which trial is best: val_accuracy:max.")]
    = None,
    stop_bad: Annotated[bool, typer.Option("--stop-bad",
                        help="End trials early if most others were better.")] = False,
    start: Annotated[bool, typer.Option("--start",
                     help="Start the trials of [trials] in hosts.toml.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run",
                       help="Print all trials and the plan, and start nothing.")] = False,
    keep: Annotated[Literal["best", "all"], typer.Option("--keep", metavar="best|all",
                    help="Fetch checkpoints and outputs of the best trial, or of all.")] = "best",
    run_id: options.RunId = None,
    accept_new_host_keys: options.AcceptNew = False,
    wait: options.WaitTime = None,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Run a training with many parameters, one in each slot of the hosts, or show their table."""
    from tfdeploy.output.plan_output import print_plan

    console, keys = shown.console(), search.trial_keys(objective, stop_bad=stop_bad)
    if any(vars(keys).values()) or start or dry_run or given.words:
        if run_id:
            raise typer.BadParameter("--run shows a run: leave out what starts another one")
        place, accept_new = options.When(wait=wait).place(), accept_new_host_keys
        run_options = replace(
            given.run_options(keys), push=True, queue=place, accept_new=accept_new
        )
        inventory = load_to_plan(given.hosts) if dry_run else load_inventory(given.hosts)
        intent = make_intent(inventory, run_options)
        if dry_run:
            print_plan(console, intent)
        else:
            _run(intent, console, every=keep == "all")
    elif given.env or given.name or wait or keep == "all":
        raise typer.BadParameter("add --param or --start: nothing else starts trials")
    else:
        _show(find_run(given.hosts, run_id), console)


def _show(run: Run, console: Console) -> None:
    from tfdeploy.commands.trials import list_trials, require_trials
    from tfdeploy.output.trial_table import print_trials

    require_trials(run)
    with open_fleet(run) as fleet:
        result = list_trials(fleet, run)
    console.print_result(result, print_trials)
    exit_if_failed(result.errors)


def _run(intent: Intent, console: Console, *, every: bool) -> None:
    """Start the trials, follow them to their end, and fetch what they reached."""
    from tfdeploy.cli.training import exit_with_end, finish, start_and_print
    from tfdeploy.commands.trials import list_trials
    from tfdeploy.hosts.fleet import Fleet

    with Fleet(intent.reached, accept_new=intent.options.accept_new) as fleet:
        run = start_and_print(fleet, intent, console).run
        run, ended = _follow(fleet, run, console)
        finished = finish(fleet, run, ended, console, every=every)
        result = list_trials(fleet, run)
    exit_with_end(console, run, finished, result, result)


def _follow(fleet: Fleet, run: Run, console: Console) -> tuple[Run, RunEnd]:
    """Follow the run to its end, with a line for each trial that starts."""
    try:
        from tfdeploy.cli.watchers import shown_following
        from tfdeploy.commands.running.follow import Watcher
        from tfdeploy.commands.running.run import follow_to_end

        shown = shown_following(console)
        watcher = Watcher(shown.on_report, on_lost=shown.on_lost, on_back=shown.on_back)
        return follow_to_end(fleet, run, watcher, 0)
    except KeyboardInterrupt:
        exit_from_following(console, run)
