"""The command line: flags become objects, objects go through a step, a step gives an exit code.

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tfdeploy.errors import TfdeployError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.steps.plan import Intent

app = typer.Typer(
    help="Turn machines that you reach by SSH into one TensorFlow cluster, train on it, "
    "and bring the checkpoints home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Hosts = Annotated[Path, typer.Option("--hosts", help="The inventory.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
RunId = Annotated[
    str | None, typer.Option("--run", help="A run's id. Default: the newest.", metavar="ID")
]
AcceptNew = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-keys", help="Trust hosts seen for the first time, and remember them."
    ),
]
HOSTS = Path("hosts.toml")
INTERRUPTED = 130
FINISH = ("stop", "collect")
COME_BACK = ("logs -f", "status", "collect", "stop")


def main() -> None:
    """Run the command line; every refusal is one clear sentence and an exit code."""
    try:
        app()
    except TfdeployError as error:
        from tfdeploy.console import Console, document

        Console().error(error)
        if "--json" in sys.argv[1:]:  # whoever parses the output finds one document in any case
            document({"error": str(error)})
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(INTERRUPTED)


@app.command()
def plan(hosts: Hosts = HOSTS, json: Json = False) -> None:
    """Show who runs where, on which ports and GPUs, with which command. Nothing is touched."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document

    intent = _intent(hosts)
    if json:
        document(documents.plan(intent))
    else:
        Console().plan(intent)


@app.command()
def push(hosts: Hosts = HOSTS, accept_new_host_keys: AcceptNew = False) -> None:
    """Send the source to every host: the same release everywhere, whole or not at all."""
    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet

    intent = _intent(hosts)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _push(fleet, intent, Console())


@app.command()
def start(hosts: Hosts = HOSTS, accept_new_host_keys: AcceptNew = False) -> None:
    """Start every task, detached, and wait until all are READY. Close the laptop then."""
    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet

    intent = _intent(hosts)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _start(fleet, intent, Console())


@app.command()
def status(hosts: Hosts = HOSTS, run: RunId = None, json: Json = False) -> None:
    """Show every task of a run: host, port, GPUs, pid, state, health."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.errors import FleetError
    from tfdeploy.steps import status as steps

    known = _run(hosts, run)
    with _fleet(known) as fleet:
        seen = steps.status(fleet, known)
    if json:
        document(documents.status(seen))
    else:
        Console().status(seen)
    if seen.errors:
        Console().error(FleetError(seen.errors))
        raise typer.Exit(1)


@app.command()
def logs(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="[TASK]…")] = None,
    hosts: Hosts = HOSTS,
    run: RunId = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as they grow.")] = False,
    lines: Annotated[int | None, typer.Option("-n", "--lines", min=0, metavar="N",
                     help="Begin with each task's last N lines. Default: all.")] = None,
) -> None:  # fmt: skip
    """Show the tasks' logs, merged. Ctrl-C stops the showing, never the run."""
    from tfdeploy.console import Console
    from tfdeploy.steps import logs as steps

    known = _run(hosts, run)
    console = Console()
    try:
        with _fleet(known) as fleet:
            steps.logs(fleet, known, tasks or [], console.lines, lines=lines, forever=follow)
    except KeyboardInterrupt:
        _left_alone(console, known)


@app.command()
def stop(hosts: Hosts = HOSTS, run: RunId = None) -> None:
    """End every process of a run, and of no other. Logs and checkpoints stay on the hosts."""
    from tfdeploy.console import Console
    from tfdeploy.steps import stop as steps

    known = _run(hosts, run)
    console = Console()
    try:
        with _fleet(known) as fleet:
            console.stopped(known, steps.stop(fleet, known))
    except KeyboardInterrupt:
        _interrupted(console, known, "interrupted before all had ended", ("stop",))


@app.command()
def collect(
    hosts: Hosts = HOSTS,
    run: RunId = None,
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint, not only the newest.")]
    = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Fetch the chief's newest checkpoint, its events and all logs into runs/<run>/."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.steps import collect as steps

    known = _run(hosts, run)
    with _fleet(known) as fleet:
        collected = steps.collect(fleet, known, every=every)
    Console(for_json=json).collected(collected)
    if json:
        document(documents.collected(known, collected))


@app.command()
def run(hosts: Hosts = HOSTS, accept_new_host_keys: AcceptNew = False, json: Json = False) -> None:
    """Push, start, follow, collect, stop. Exits as the chief does."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.fleet import Fleet
    from tfdeploy.steps import run as steps

    console = Console(for_json=json)
    intent = _intent(hosts)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _push(fleet, intent, console)
        begun = _start(fleet, intent, console)
        watcher = steps.Watcher(console.report, console.lines, console.lost)
        try:
            ended = steps.follow(fleet, begun, watcher)
        except KeyboardInterrupt:
            _left_alone(console, begun)
        try:
            finished = steps.finish(fleet, begun, ended)
        except KeyboardInterrupt:
            _interrupted(console, begun, "interrupted while it was stopped and collected", FINISH)
    console.finished(begun, finished)
    if finished.failure:
        console.error(finished.failure)
    if json:
        document(documents.finished(begun, finished))
    raise typer.Exit(finished.exit)


def _intent(hosts: Path) -> Intent:
    from tfdeploy import inventory
    from tfdeploy.steps.plan import plan_all

    return plan_all(inventory.load(hosts))


def _run(hosts: Path, run_id: str | None) -> Run:
    from tfdeploy import run

    return run.load(hosts, run_id)


def _fleet(known: Run) -> Fleet:
    """The hosts of a run, asked with the agent that started it."""
    from tfdeploy.fleet import Fleet

    return Fleet(known.inventory, version=known.agent)


def _push(fleet: Fleet, intent: Intent, console: Console) -> None:
    from tfdeploy.steps.push import push

    with console.pushing(list(fleet.agents)) as on_progress:
        outcome = push(fleet, intent.inventory.project, intent.release, on_progress)
    console.pushed(outcome, intent)


def _start(fleet: Fleet, intent: Intent, console: Console) -> Run:
    from tfdeploy.steps.start import start

    try:
        begun = start(fleet, intent, console.report)
    except KeyboardInterrupt:
        console.interrupted("interrupted before all was READY: what had started was stopped again")
        raise typer.Exit(INTERRUPTED) from None
    console.started(begun)
    return begun


def _left_alone(console: Console, known: Run) -> NoReturn:
    found = f"stopped following; run {known.id} goes on. Come back with"
    _interrupted(console, known, found, COME_BACK)


def _interrupted(console: Console, known: Run, found: str, verbs: Sequence[str]) -> NoReturn:
    next_lines = [f"  tfdeploy {verb} {known.flags}" for verb in verbs]
    console.interrupted("\n".join([found, *next_lines]))
    raise typer.Exit(INTERRUPTED)
