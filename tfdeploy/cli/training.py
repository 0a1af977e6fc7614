"""The commands that lead to a run and follow it: plan, trust, check, push, start, run, attach."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import PREPARE, TRAIN, add_command
from tfdeploy.cli.completion import propose_runs
from tfdeploy.cli.options import (
    exit_from_following,
    exit_if_failed,
    exit_interrupted,
    find_run,
    load_inventory,
    load_to_plan,
    make_intent,
    open_fleet,
    take_newer_record,
)
from tfdeploy.cli.streams import end_with_reader
from tfdeploy.config.hosts_file import hosts_flag
from tfdeploy.errors import OutdatedRecord, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.running.follow import RunEnd
    from tfdeploy.commands.running.run import FinishedRun
    from tfdeploy.commands.start import StartResult
    from tfdeploy.commands.trials import TrialsResult
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run

LOOK_EVERY_S = 5.0
OLD_LINES = 20  # of each log, when a run is followed again
COMMANDS_TO_FINISH = ("stop", "collect")
COMMANDS_TO_INSPECT = ("status", "logs -f", "resume", "collect", "stop")


@add_command(PREPARE, "plan", "plan --hosts lab.toml -- --lr 0.1", "plan --param lr=0.1,0.01")
def plan(
    given: options.ForRun = options.FOR_RUN,
    counts: options.With = None,
    search: options.Search = options.SEARCH,
    json: options.Json = False,
) -> None:
    """Show each task's host, port, GPUs and command, or all trials. Connects to no host, unless
    [training] has workers."""
    from tfdeploy.commands.preflight.plan_warnings import (
        connection_notes,
        placeholder_notes,
        plan_warnings,
    )
    from tfdeploy.config.overrides import parse_counts
    from tfdeploy.output import documents
    from tfdeploy.output.console import Console, print_json
    from tfdeploy.output.plan_output import print_plan

    trials = search.trial_keys() if search != options.SEARCH else None
    if trials and counts:
        raise typer.BadParameter("--with: trials have slots; set slots_per_host in hosts.toml")
    run_options = replace(given.run_options(trials), counts=parse_counts(counts or (), "--with"))
    intent = make_intent(load_to_plan(given.hosts), run_options)
    notes = [*plan_warnings(intent), *placeholder_notes(intent)]
    notes += connection_notes(intent.inventory)
    if json:
        print_json(documents.plan_document(intent, notes))
    else:
        console = Console()
        print_plan(console, intent)
        console.print_notes(notes)


@add_command(PREPARE, "trust")
def trust(
    hosts: options.Hosts = options.HOSTS,
    run_id: Annotated[str | None, typer.Option("--run", metavar="RUN",
                      help="Trust what the hosts.toml of this run names, by its id or name.",
                      autocompletion=propose_runs)] = None,
) -> None:  # fmt: skip
    """Trust what hosts.toml runs on its hosts, and its paths outside of the repository."""
    from tfdeploy import run as runs
    from tfdeploy.config import inventory
    from tfdeploy.output.console import Console
    from tfdeploy.trust import sensitive_values, store, words

    trusted = runs.load(hosts, run_id).inventory if run_id else inventory.load(hosts)
    store.remember(trusted)
    values = words.lines(sensitive_values.find(trusted), {})
    Console().print_text(f"trusted for {trusted.file.parent}:", *(f"  {line}" for line in values))


@add_command(PREPARE, "check", "check --on gpu-[01-04]", "check --network")
def check(
    hosts: options.Hosts = options.HOSTS,
    on: options.OnHosts = None,
    network: Annotated[bool, typer.Option("--network",
        help="Also measure how fast hosts reach each other whose tasks will talk.")] = False,
    yes: Annotated[bool, typer.Option("--yes",
        help="Do not ask: measure the network beside live runs, too.")] = False,
    json: options.Json = False,
    accept_new_host_keys: options.AcceptNew = False,
) -> None:  # fmt: skip
    """Check the framework, GPUs, ports, disk and network of every host. Starts nothing."""
    from tfdeploy.cli.questions import allow_beside_live_tasks
    from tfdeploy.commands import check as command
    from tfdeploy.commands.intent import RunOptions
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console, print_json
    from tfdeploy.output.plan_output import check_progress, print_check

    console = Console()
    run_options = RunOptions(accept_new=accept_new_host_keys)
    intent = make_intent(load_inventory(hosts), run_options)
    chosen = intent.hosts_on(on or ())
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        if network and not yes:
            allow_beside_live_tasks(fleet, chosen)
        with check_progress(console, intent, chosen):
            checked = command.check(fleet, intent, chosen)
            if network:
                command.check_network(fleet, intent, checked)
    if json:
        print_json(checked)
    else:
        print_check(console, checked, intent, hosts_flag(intent.inventory.file))
    exit_if_failed(checked.errors)


@add_command(PREPARE, "hosts", "hosts gpu-[01-04] --watch")
def hosts(
    names: Annotated[list[str] | None, typer.Argument(
        metavar="[USER@]HOST", help="Hosts, or several: gpu-[01-16]. Without a hosts.toml, hosts "
        "as ssh knows them. Default: all of hosts.toml.", show_default=False)] = None,
    hosts: options.Hosts = options.HOSTS,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every 5 s.")] = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Show what each host has free, and who uses its GPUs. Starts nothing."""
    if watch:
        end_with_reader()
    from tfdeploy.commands import hosts as command
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console, print_json, print_json_lines
    from tfdeploy.output.hosts_output import clear_screen, print_hosts

    inventory, chosen, unreached = _hosts_to_look_at(hosts, names or ())
    console = Console()
    with Fleet(inventory) as fleet:
        while True:
            result = command.look(fleet, chosen, unreached)
            if json:
                print_json_lines([result]) if watch else print_json(result)
            else:
                clear_screen(console) if watch else None
                print_hosts(console, result)
            if not watch:
                break
            time.sleep(LOOK_EVERY_S)
    exit_if_failed(result.errors)


def _hosts_to_look_at(
    hosts: Path, names: Sequence[str]
) -> tuple[Inventory, tuple[str, ...], list[TfdeployError]]:
    """Return the hosts that the user named, of hosts.toml if there is one, and the errors of those
    that are of no use."""
    if hosts.is_file() or not names:
        from tfdeploy.commands.plan import with_hosts

        inventory = load_inventory(hosts)
        chosen = with_hosts(inventory, names).hosts
        return inventory, tuple(host.name for host in chosen), []
    from tfdeploy.commands.init import reach
    from tfdeploy.init.targets import parse_targets

    reached, errors = reach(parse_targets(names, local=False), hosts, "", accept_new=False)
    return reached, tuple(host.name for host in reached.hosts), errors


@add_command(TRAIN, "push", "push --on gpu-[01-04],gpu-07")
def push(
    hosts: options.Hosts = options.HOSTS,
    on: options.OnHosts = None,
    accept_new_host_keys: options.AcceptNew = False,
    shown: options.Shown = options.SHOWN,
) -> None:
    """Send the source to every host, and data sets to the hosts that read them."""
    from tfdeploy.cli.watchers import shown_start
    from tfdeploy.commands import push as command
    from tfdeploy.commands.intent import RunOptions
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output import documents

    console = shown.console()
    run_options = RunOptions(accept_new=accept_new_host_keys)
    intent = make_intent(load_inventory(hosts), run_options)
    chosen = intent.hosts_on(on or ())
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        outcome = command.push(fleet, intent, shown_start(console), chosen)
    console.print_document(documents.push_document(intent, outcome))


@add_command(TRAIN, "start", "start --env SEED=7 -- --lr 0.1")
def start(
    given: options.ToStart = options.TO_START,
    push: Annotated[bool, typer.Option("--push", help="Push before the start.")] = False,
    when: options.When = options.WHEN,
    shown: options.Shown = options.SHOWN,
) -> None:
    """Start every task and wait until all are READY. They then run without the controller."""
    from tfdeploy.hosts.fleet import Fleet

    run_options, console = given.start_options(when, push=push), shown.console()
    intent = make_intent(load_inventory(given.hosts), run_options)
    with Fleet(intent.reached, accept_new=run_options.accept_new) as fleet:
        started = start_and_print(fleet, intent, console)
    console.print_document(started)


@add_command(TRAIN, "run", "run --resilient --env SEED=7 -- --lr 0.1 --epochs 5")
def run(
    given: options.ToStart = options.TO_START,
    resilient: Annotated[bool, typer.Option("--resilient",
                         help="If a host or a supervisor is lost permanently, resume the run "
                         "without it, in the queue if others use or wait for its GPUs.")] = False,
    when: options.When = options.WHEN,
    shown: options.Shown = options.SHOWN,
) -> None:  # fmt: skip
    """Push, start and follow a run; then stop and collect it. Exits with the chief's code."""
    if when.queue and resilient:
        raise typer.BadParameter(
            "--queue returns at once and --resilient follows the run; expected --wait forever "
            "--resilient"
        )
    from tfdeploy.hosts.fleet import Fleet

    run_options, console = given.start_options(when, push=True), shown.console()
    intent = make_intent(load_inventory(given.hosts), run_options)
    with Fleet(intent.reached, accept_new=run_options.accept_new) as fleet:
        started = start_and_print(fleet, intent, console)
        if when.queue:
            console.print_document(started)
            return
        current, ended = _follow(fleet, started.run, console, resilient=resilient)
        finished = finish(fleet, current, ended, console)
    exit_with_end(console, current, finished, finished)


@add_command(TRAIN, "attach", "attach 20260501-101500-3f2a")
def attach(
    run: options.RunArgument = None,
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    shown: options.Shown = options.SHOWN,
) -> None:
    """Follow a run again; at its end stop and collect it, as `run` does."""
    from tfdeploy.cli.watchers import shown_following
    from tfdeploy.commands.running.run import follow_to_end
    from tfdeploy.commands.trials import trials_of
    from tfdeploy.output.progress import show_transfers

    console = shown.console()
    attached = find_run(hosts, run or run_id)
    with open_fleet(attached) as fleet:
        try:
            with show_transfers(console, fleet.transfers, beside_events=True):
                watcher = shown_following(console)
                attached, ended = follow_to_end(fleet, attached, watcher, OLD_LINES)
        except KeyboardInterrupt:
            exit_from_following(console, attached)
        finished = finish(fleet, attached, ended, console)
        trials = trials_of(fleet, attached)
    exit_with_end(console, attached, finished, finished, trials)


def start_and_print(fleet: Fleet, intent: Intent, console: Console) -> StartResult:
    """Start a run; print that it is READY, or that its hosts will start it."""
    from tfdeploy.cli.watchers import shown_start
    from tfdeploy.commands.start import start_run
    from tfdeploy.output.run_events import print_queued, print_started

    watcher = shown_start(console)
    started, queue = start_run(fleet, intent, watcher), intent.options.queue
    is_ready = queue is None or queue.wait_s is not None
    print_started(console, started.run) if is_ready else print_queued(console, started.run)
    return started


def _follow(
    fleet: Fleet, current_run: Run, console: Console, *, resilient: bool
) -> tuple[Run, RunEnd]:
    """Follow the run to its end; return it as it was last resumed."""
    try:
        # Within the try: the user may type Ctrl-C while these modules are imported.
        from tfdeploy.cli.watchers import shown_following
        from tfdeploy.commands.running.run import follow_resiliently, follow_to_end
        from tfdeploy.output.progress import show_transfers

        follow = follow_resiliently if resilient else follow_to_end
        with show_transfers(console, fleet.transfers, beside_events=True):
            return follow(fleet, current_run, shown_following(console))
    except OutdatedRecord as outdated:  # `run` once more would start another one
        take_newer_record(outdated)
        flags = replace(current_run, id=outdated.run).flags
        hint = f"to follow it: tfdeploy attach {flags}"
        raise RunError(outdated.message, hint) from None
    except KeyboardInterrupt:
        if resilient:  # a resume may just have stopped it
            text = f"interrupted; run {current_run.id} may be partly stopped. Next:"
            exit_interrupted(console, current_run, text, COMMANDS_TO_INSPECT)
        exit_from_following(console, current_run)


def finish(
    fleet: Fleet, current_run: Run, ended: RunEnd, console: Console, *, every: bool = False
) -> FinishedRun:
    """Stop what is left of a run, and collect; exit at Ctrl-C with what to type next."""
    from tfdeploy.commands.running import run as command
    from tfdeploy.output.progress import show_transfers

    try:
        with show_transfers(console, fleet.transfers):
            return command.finish(fleet, current_run, ended, every=every)
    except KeyboardInterrupt:
        text = "interrupted while the run was being stopped and collected. Next:"
        exit_interrupted(console, current_run, text, COMMANDS_TO_FINISH)


def exit_with_end(
    console: Console,
    ended_run: Run,
    finished: FinishedRun,
    document: FinishedRun | TrialsResult,
    trials: TrialsResult | None = None,
) -> NoReturn:
    """Print how the run and its trials ended, or the document with --json; exit with the run's
    code, or with 1 if a host gave no answer."""
    from tfdeploy.output.results_output import print_finished
    from tfdeploy.output.run_events import print_failure
    from tfdeploy.output.trial_table import print_trials

    print_finished(console, ended_run, finished)
    if trials and not console.for_json:
        print_trials(console, trials)
    if finished.failure:
        print_failure(console, finished.failure)
    console.print_document(document)
    exit_if_failed(finished.errors)
    raise typer.Exit(finished.exit)
