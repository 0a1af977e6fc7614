"""The commands that make a training go: plan, push, start, run, resume."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.options import (
    HOSTS,
    INTERRUPTED,
    AcceptNew,
    Hosts,
    Json,
    RunId,
    app,
    exit_with,
    intent_of,
    interrupted,
    left_alone,
    run_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.steps.plan import Intent

FINISH = ("stop", "collect")
LOOK = ("status", "logs -f", "resume", "collect", "stop")


@app.command()
def plan(hosts: Hosts = HOSTS, json: Json = False) -> None:
    """Show who runs where, on which ports and GPUs, with which command. Nothing is touched."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document

    intent = intent_of(hosts)
    if json:
        document(documents.plan(intent))
    else:
        Console().plan(intent)


@app.command()
def check(
    hosts: Hosts = HOSTS, json: Json = False, accept_new_host_keys: AcceptNew = False
) -> None:
    """Look at every host: TensorFlow, GPUs, ports, room, who reaches whom. Nothing is started."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.fleet import Fleet
    from tfdeploy.steps import check as steps

    intent, console = intent_of(hosts), Console()
    with (
        console.busy(f"looking at {len(intent.inventory.hosts)} hosts, which import TensorFlow"),
        Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet,
    ):
        checked = steps.check(fleet, intent)
    if json:
        document(documents.checked(checked))
    else:
        console.checked(checked, intent)
    exit_with(checked.errors)


@app.command()
def push(hosts: Hosts = HOSTS, accept_new_host_keys: AcceptNew = False) -> None:
    """Send the source to every host, and data sets to those that read them: whole or not at all."""
    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet

    intent = intent_of(hosts)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _push(fleet, intent, Console())


@app.command()
def start(hosts: Hosts = HOSTS, accept_new_host_keys: AcceptNew = False) -> None:
    """Start every task, detached, and wait until all are READY. Close the laptop then."""
    from tfdeploy.console import Console
    from tfdeploy.fleet import Fleet

    intent = intent_of(hosts)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _start(fleet, intent, Console())


@app.command()
def run(
    hosts: Hosts = HOSTS,
    accept_new_host_keys: AcceptNew = False,
    resilient: Annotated[bool, typer.Option("--resilient",
                         help="When a host or a supervisor is lost for good, resume without it.")]
    = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Push, start, follow, stop what is left, collect. Exits as the chief does."""
    from tfdeploy import documents
    from tfdeploy.console import Console, document
    from tfdeploy.fleet import Fleet
    from tfdeploy.steps import run as steps

    console = Console(for_json=json)
    intent = intent_of(hosts)
    watcher = steps.Watcher(
        console.report, console.lines, console.waiting, console.back, console.arrived,
        console.delayed, console.fallen, console.resumed,
    )  # fmt: skip
    follow = steps.follow_resiliently if resilient else steps.follow_to_end
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        _push(fleet, intent, console)
        begun = _start(fleet, intent, console)
        try:
            begun, ended = follow(fleet, begun, watcher)
        except KeyboardInterrupt:
            if resilient:  # it may have been stopped, to be resumed
                interrupted(console, begun, f"interrupted; what of run {begun.id} goes on?", LOOK)
            left_alone(console, begun)
        try:
            finished = steps.finish(fleet, begun, ended)
        except KeyboardInterrupt:
            interrupted(console, begun, "interrupted while it was stopped and collected", FINISH)
    console.finished(begun, finished)
    if finished.failure:
        console.error(finished.failure)
    if json:
        document(documents.finished(begun, finished))
    raise typer.Exit(finished.exit)


@app.command()
def resume(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Default: the newest.")] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="HOST",
                       help="A host that is gone, or several as gpu[01-04]: spare ones take their "
                            "place, or those left do.")]
    = None,
    hosts: Hosts = HOSTS,
    named: RunId = None,
) -> None:  # fmt: skip
    """Go on with a run that was lost or stopped, from its newest checkpoint."""
    from tfdeploy.console import Console
    from tfdeploy.steps import resume as steps

    known = run_of(hosts, run or named)
    console = Console()
    with _undone(console):
        resumed = steps.resume(known, without or [], console.report)
    console.resumed(resumed)


def _push(fleet: Fleet, intent: Intent, console: Console) -> None:
    from tfdeploy.steps.push import push

    with console.pushing(list(fleet.agents)) as tally:
        outcome = push(fleet, intent, tally, tally.failed)
    console.pushed(outcome, intent)


def _start(fleet: Fleet, intent: Intent, console: Console) -> Run:
    from tfdeploy.steps.start import start

    with _undone(console):
        begun = start(fleet, intent, console.report)
    console.started(begun)
    return begun


@contextmanager
def _undone(console: Console) -> Iterator[None]:
    """A start that is interrupted has been taken back before we hear of it."""
    try:
        yield
    except KeyboardInterrupt:
        console.interrupted("interrupted before all was READY: what had started was stopped again")
        raise typer.Exit(INTERRUPTED) from None
