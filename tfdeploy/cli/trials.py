"""The command `trials`: start many trainings with other parameters, or show how they go on."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import TRAIN, add_command
from tfdeploy.cli.options import (
    exit_from_following,
    exit_if_failed,
    find_run,
    load_trials,
    open_fleet,
    parse_queue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.commands.following.run_follow import RunEnd
    from tfdeploy.commands.plan import Intent
    from tfdeploy.commands.trials import TrialsResult
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run

REFRESH_S = 2.0


@add_command(
    TRAIN,
    "trials --param lr=0.1,0.01 --param batch=32,64 --objective val_accuracy:max -- --epochs 5",
    "trials --param lr=1e-4..0.1:log --random 20",
    "trials                  # how the newest run's trials are",
)
def trials(
    words: options.Words = None,
    hosts: options.Hosts = options.HOSTS,
    param: options.Params = None,
    random: options.Random = None,
    repeat: options.Repeat = None,
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
    env: options.Env = None,
    name: options.RunName = None,
    accept_new_host_keys: options.AcceptNew = False,
    wait: options.WaitTime = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Run a training with many parameters, one in each slot of the hosts, or show their table."""
    from tfdeploy.output.console import Console
    from tfdeploy.output.plan_output import print_plan

    console = Console(for_json=json, is_quiet=quiet)
    values = {"params": param, "random": random, "repeat": repeat, "objective": objective,
              "stop_bad": stop_bad}  # fmt: skip
    given = {key: value for key, value in values.items() if value}
    if given or start or dry_run or words:
        if run_id:
            raise typer.BadParameter("--run shows a run: leave out what starts another one")
        intent = load_trials(hosts, given, words, env, name)
        if dry_run:
            print_plan(console, intent)
        else:
            _run(intent, console, accept_new_host_keys, wait, every=keep == "all")
    elif env or name or wait or keep == "all":
        raise typer.BadParameter("add --param or --start: nothing else starts trials")
    else:
        _show(find_run(hosts, run_id), console)


def _show(run: Run, console: Console) -> None:
    from tfdeploy.commands.trials import list_trials, require_trials
    from tfdeploy.output.experiment_output import print_trials

    require_trials(run)
    with open_fleet(run) as fleet:
        result = list_trials(fleet, run)
    console.print_result(result, print_trials)
    exit_if_failed(result.errors)


def _run(
    intent: Intent, console: Console, accept_new: bool, wait: str | None, *, every: bool
) -> None:
    """Start the trials, follow them to their end, and fetch what they reached."""
    from tfdeploy.cli.training import exit_with_end, finish, start_and_print
    from tfdeploy.commands.trials import list_trials
    from tfdeploy.hosts.fleet import Fleet

    with Fleet(intent.reached, accept_new=accept_new) as fleet:
        run = start_and_print(fleet, intent, console, parse_queue(wait), push_first=True).run
        run, ended = _follow(fleet, run, console)
        finished = finish(fleet, run, ended, console, every=every)
        result = list_trials(fleet, run)
    exit_with_end(console, run, finished, result, result)


def _follow(fleet: Fleet, run: Run, console: Console) -> tuple[Run, RunEnd]:
    """Follow the run to its end. A terminal shows the table of trials, other outputs a line for
    each that starts."""
    try:
        from tfdeploy.cli.watchers import shown_following
        from tfdeploy.commands.following.run_follow import Watcher
        from tfdeploy.commands.run import follow_to_end

        shown = shown_following(console)
        with _live_table(fleet, run, console) as is_live:
            watcher = Watcher(on_lost=shown.on_lost, on_back=shown.on_back)
            if not is_live:
                watcher = replace(watcher, on_report=shown.on_report)
            return follow_to_end(fleet, run, watcher, 0)
    except KeyboardInterrupt:
        exit_from_following(console, run)


@contextmanager
def _live_table(fleet: Fleet, run: Run, console: Console) -> Iterator[bool]:
    """Show the table in a thread; yield whether it is shown, on a terminal."""
    from tfdeploy.commands.trials import list_trials
    from tfdeploy.errors import TfdeployError
    from tfdeploy.output.experiment_output import trials_progress

    closed = threading.Event()

    def refresh(show: Callable[[TrialsResult], None]) -> None:
        while not closed.wait(REFRESH_S):
            with suppress(TfdeployError):  # hosts that do not answer
                show(list_trials(fleet, run))

    with trials_progress(console) as show:
        if not show:
            yield False
            return
        thread = threading.Thread(target=refresh, args=(show,), daemon=True)
        thread.start()
        try:
            yield True
        finally:
            closed.set()
            thread.join(REFRESH_S)
