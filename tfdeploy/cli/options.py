"""What several commands share: options, and ways to begin and to exit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tfdeploy.cli import completion
from tfdeploy.cli.command import INTERRUPTED
from tfdeploy.config.hosts_file import NAME, VARIABLE, find_hosts_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tfdeploy.commands.plan import Intent
    from tfdeploy.commands.start import Queue
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.errors import OutdatedRecord, TfdeployError
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.output.console import Console
    from tfdeploy.run import Run


def _find_default(ctx: typer.Context, file: Path) -> Path:
    """Return the hosts file that the user named, or else the one that is found."""
    source = ctx.get_parameter_source("hosts")
    return find_hosts_file() if source and source.name == "DEFAULT" else file


def _refuse_without_dashes(words: list[str] | None) -> list[str] | None:
    """Refuse words that are probably a slip: those for the program come after `--`."""
    if words and "--" not in sys.argv:
        raise typer.BadParameter(
            f'found "{words[0]}"; expected -- before words for the program: -- {words[0]}'
        )
    return words


HOSTS = Path(NAME)
RUN_HELP = "A run's id or name. Default: the newest run."
TASK_HELP = "A task (worker:1), several (worker:[0-3]), or a job (worker)."
Texts = list[str] | None

# fmt: off
Hosts = Annotated[Path, typer.Option("--hosts", envvar=VARIABLE, callback=_find_default,
    help="The hosts file: of this folder, or of the nearest one above.", metavar="FILE",
    autocompletion=completion.propose_hosts_files)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
JsonLines = Annotated[bool, typer.Option("--json",
    help="Print each line of a log as a JSON object.")]
RunId = Annotated[str | None, typer.Option("--run", help=RUN_HELP, metavar="RUN",
    autocompletion=completion.propose_runs)]
RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP,
    show_default=False, autocompletion=completion.propose_runs)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet",
    help="Print only results, warnings and errors.")]
AcceptNew = Annotated[bool, typer.Option("--accept-new-host-keys",
    help="Trust hosts that are not in known_hosts yet, and add their keys to it.")]
Env = Annotated[Texts, typer.Option("--env", metavar="NAME=VALUE",
    help="Set a variable of every task for this run. Repeatable.")]
Words = Annotated[Texts, typer.Argument(metavar="-- WORD", callback=_refuse_without_dashes,
    help="Words to add to training.command for this run: -- --lr 0.1", show_default=False)]
With = Annotated[Texts, typer.Option("--with", metavar="COUNTS",
    help="Start other numbers of tasks on the same hosts: ps=2,workers=8.")]
On = Annotated[Texts, typer.Option("--on", metavar="HOST",
    help="Hosts for the additional tasks, such as gpu-[05-08].")]
RunName = Annotated[str | None, typer.Option("--name", metavar="NAME",
    help="A name for this run, for {name} and --run.")]
Params = Annotated[Texts, typer.Option("--param", metavar="NAME=VALUES",
    help="Values of an option of the program, one for each trial: lr=0.1,0.01, or a range for "
    "--random: lr=1e-4..0.1:log. Repeatable.")]
Random = Annotated[int | None, typer.Option("--random", metavar="N", min=1,
    help="Draw N combinations for trials. Default: all of them.")]
Repeat = Annotated[int | None, typer.Option("--repeat", metavar="N", min=1,
    help="Run each combination of trials N times.")]
OlderRelease = Annotated[str | None, typer.Option("--release", metavar="ID",
    help="Start an older release that is still on the hosts: its id, or that of a run with it.")]
WaitTime = Annotated[str | None, typer.Option("--wait", metavar="DURATION", show_default=False,
    help="Wait in the queue of the hosts for GPUs and ports that are in use: 90s, 30m, 1h, or "
    "forever.")]
InQueue = Annotated[bool, typer.Option("--queue",
    help="Return at once: the hosts start the run when its GPUs and ports are free and it is "
    "its turn. The controller may be switched off.")]
Priority = Annotated[int, typer.Option("--priority", metavar="N", min=-99, max=99,
    help="The place in the queue: higher numbers come first.")]
ShareGpus = Annotated[bool, typer.Option("--share-gpus",
    help="Start on GPUs that processes of others use, too.")]
TaskArguments = Annotated[Texts, typer.Argument(metavar="TASK",
    help=f"{TASK_HELP} Default: all tasks.", show_default=False,
    autocompletion=completion.propose_tasks)]
Tasks = Annotated[Texts, typer.Option("--task", metavar="TASK", help=f"{TASK_HELP} Repeatable.",
    autocompletion=completion.propose_tasks)]
OnHosts = Annotated[Texts, typer.Option("--on", metavar="HOST",
    help="Only this host, or several: gpu-[01-04]. Repeatable.",
    autocompletion=completion.propose_hosts)]
# fmt: on
COMMANDS_AFTER_FOLLOWING = ("attach", "logs -f", "status", "collect", "stop")


def load_inventory(hosts: Path) -> Inventory:
    """Load a hosts.toml that the user trusts, or is asked about."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    return opening.load_inventory(hosts, USER)


def load_intent(
    hosts: Path,
    words: Sequence[str] | None = None,
    variables: Sequence[str] | None = None,
    counts: Sequence[str] | None = None,
    name: str | None = None,
    release: str | None = None,
    *,
    on: Sequence[str] | None = None,
    share_gpus: bool = False,
    accept_new: bool = False,
) -> Intent:
    """Plan what hosts.toml says, with what the command line changes for one run."""
    from tfdeploy.api import opening
    from tfdeploy.commands.plan import with_hosts
    from tfdeploy.config.overrides import parse_counts, with_shared_gpus

    changed = parse_counts(counts or (), "--with")
    inventory = load_inventory(hosts)
    inventory = with_hosts(inventory, on) if on else inventory
    inventory = with_shared_gpus(inventory) if share_gpus else inventory
    given = (words or (), variables or (), changed, name or "", release or "")
    return opening.plan(inventory, *given, accept_new=accept_new)


def load_trials(
    hosts: Path,
    given: Mapping[str, Any],
    words: Sequence[str] | None,
    variables: Sequence[str] | None,
    name: str | None,
) -> Intent:
    """Plan the trials of hosts.toml, with the keys of [trials] that the command line has."""
    from tfdeploy.api import opening
    from tfdeploy.commands.trials import plan_trials

    inventory = plan_trials(load_inventory(hosts), given)
    return opening.plan(inventory, words or (), variables or (), name=name or "")


def find_run(hosts: Path, run_id: str | None) -> Run:
    """Return the run that the user means, from its record or from its hosts."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    return opening.find_run(hosts, run_id, USER)


def take_newer_record(outdated: OutdatedRecord) -> None:
    """Take the newer record that the run's hosts have, and say so."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    opening.take_newer_record(outdated, USER)


def open_fleet(run: Run) -> Fleet:
    """Return the hosts of a run. They use the version of the agent that started it."""
    from tfdeploy.api import opening

    return opening.open_fleet(run)


def parse_queue(wait: str | None, *, queued: bool = False, priority: int = 0) -> Queue | None:
    """Return how a run waits in the queue of its hosts; None if it does not. Raises
    InventoryError."""
    from tfdeploy.commands.start import Queue
    from tfdeploy.config.overrides import parse_wait

    if queued and wait:
        raise typer.BadParameter("--queue returns at once and --wait waits; expected one of them")
    if priority and not (queued or wait):
        raise typer.BadParameter("--priority: expected --queue or --wait with it")
    return Queue(parse_wait(wait) if wait else None, priority) if queued or wait else None


def exit_if_failed(errors: Sequence[TfdeployError]) -> None:
    """Print the errors of some hosts and exit with 1. Call it after printing what the other hosts
    answered."""
    if errors:
        from tfdeploy.errors import FleetError
        from tfdeploy.output.console import Console

        Console().print_error(FleetError(errors))
        raise typer.Exit(1)


def exit_from_following(console: Console, run: Run) -> NoReturn:
    text = f"stopped following; run {run.id} continues. Next:"
    exit_interrupted(console, run, text, COMMANDS_AFTER_FOLLOWING)


def exit_interrupted(console: Console, run: Run, text: str, commands: Sequence[str]) -> NoReturn:
    """Print the text and what to type next: each command, with the options that name the run."""
    lines = [f"  tfdeploy {command} {run.flags}" for command in commands]
    console.print_interrupted(text, *lines)
    raise typer.Exit(INTERRUPTED)
