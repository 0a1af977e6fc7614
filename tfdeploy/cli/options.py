"""What several commands share: the application, its options, and how a command begins and ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.console import Console
    from tfdeploy.errors import TfdeployError
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
COME_BACK = ("logs -f", "status", "collect", "stop")


def intent_of(hosts: Path) -> Intent:
    from tfdeploy import inventory
    from tfdeploy.steps.plan import plan_all

    return plan_all(inventory.load(hosts))


def run_of(hosts: Path, run_id: str | None) -> Run:
    from tfdeploy import run

    return run.load(hosts, run_id)


def fleet_of(known: Run) -> Fleet:
    """The hosts of a run, asked with the agent that started it."""
    from tfdeploy.fleet import Fleet

    return Fleet(known.inventory, version=known.agent)


def exit_with(errors: Sequence[TfdeployError]) -> None:
    """With 1 where some hosts gave no answer, after what the others said was shown."""
    if errors:
        from tfdeploy.console import Console
        from tfdeploy.errors import FleetError

        Console().error(FleetError(errors))
        raise typer.Exit(1)


def left_alone(console: Console, known: Run) -> NoReturn:
    found = f"stopped following; run {known.id} goes on. Come back with"
    interrupted(console, known, found, COME_BACK)


def interrupted(console: Console, known: Run, found: str, verbs: Sequence[str]) -> NoReturn:
    next_lines = [f"  tfdeploy {verb} {known.flags}" for verb in verbs]
    console.interrupted("\n".join([found, *next_lines]))
    raise typer.Exit(INTERRUPTED)
