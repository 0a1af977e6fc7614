"""The commands that look at a run, bring home what it made, or end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.options import (
    HOSTS,
    Hosts,
    Json,
    RunId,
    app,
    exit_with,
    fleet_of,
    interrupted,
    left_alone,
    run_of,
)

if TYPE_CHECKING:
    from tfdeploy.console import Console
    from tfdeploy.run import Run
    from tfdeploy.steps.collect import Collected


@app.command()
def status(hosts: Hosts = HOSTS, run: RunId = None, json: Json = False) -> None:
    """Show every task of a run: host, port, GPUs, pid, state, health."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.steps import status as steps

    known = run_of(hosts, run)
    with fleet_of(known) as fleet:
        seen = steps.status(fleet, known)
    if json:
        document(documents.status(seen))
    else:
        Console().status(seen)
    exit_with(seen.errors)


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

    known = run_of(hosts, run)
    console = Console()
    try:
        with fleet_of(known) as fleet:
            steps.logs(
                fleet, known, tasks or [], console.lines, lines=lines, forever=follow,
                on_lost=console.waiting, on_back=console.back,
            )  # fmt: skip
    except KeyboardInterrupt:
        left_alone(console, known)


@app.command()
def collect(
    hosts: Hosts = HOSTS,
    run: RunId = None,
    every: Annotated[bool, typer.Option("--all", help="Every checkpoint, not only the newest.")]
    = False,
    follow: Annotated[bool, typer.Option("-f", "--follow",
                      help="Fetch each new checkpoint as it comes, until the chief ends.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Fetch the chief's newest checkpoint, its events and all logs into runs/<run>/."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.steps import collect as steps

    known = run_of(hosts, run)
    console = Console(for_json=json)
    if follow:
        collected = _gather(known, console, every)
    else:
        with fleet_of(known) as fleet:
            collected = steps.collect(fleet, known, every=every)
    console.collected(collected)
    if json:
        document(documents.collected(known, collected))


@app.command()
def stop(hosts: Hosts = HOSTS, run: RunId = None) -> None:
    """End every process of a run, and of no other. Logs and checkpoints stay on the hosts."""
    from tfdeploy.console import Console
    from tfdeploy.steps import stop as steps

    known = run_of(hosts, run)
    console = Console()
    try:
        with fleet_of(known) as fleet:
            console.stopped(known, steps.stop(fleet, known))
    except KeyboardInterrupt:
        interrupted(console, known, "interrupted before all had ended", ("stop",))


def _gather(known: Run, console: Console, every: bool) -> Collected:
    from tfdeploy.steps import gather

    console.say(f"run {known.id}: each new checkpoint comes home, until the chief ends")
    try:
        with fleet_of(known) as fleet:
            return gather.follow(
                fleet, known, console.arrived, on_failed=console.delayed,
                on_lost=console.waiting, on_back=console.back, every=every,
            )  # fmt: skip
    except KeyboardInterrupt:
        left_alone(console, known)
