"""What several commands share: options, and ways to open runs and to exit."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from tfdeploy.cli import completion
from tfdeploy.cli.command import INTERRUPTED, Group
from tfdeploy.config.hosts_file import NAME, VARIABLE, find_hosts_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.commands.intent import Intent, Queue, RunOptions, TrialKeys
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
Runs = Annotated[list[str] | None, typer.Argument(metavar="RUN",
    help="A run's id or name; several are shown side by side. Default: the newest run.",
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
PriorityName = Literal["high", "normal"]
Priority = Annotated[PriorityName, typer.Option("--priority", metavar="high|normal",
    help="The place in the queue: runs with high come first.")]
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


@dataclass(frozen=True)
class Shown(Group):
    """What a command prints."""

    json: Json = False
    quiet: Quiet = False

    def console(self) -> Console:
        from tfdeploy.output.console import Console

        return Console(for_json=self.json, is_quiet=self.quiet)


@dataclass(frozen=True)
class When(Group):
    """When a run starts, and on which GPUs."""

    wait: WaitTime = None
    queue: InQueue = False
    priority: Priority = "normal"
    share_gpus: ShareGpus = False

    def place(self) -> Queue | None:
        """Return how the run waits in the queue of its hosts; None if it does not. Raises
        InventoryError."""
        from tfdeploy.commands.intent import Queue
        from tfdeploy.config.overrides import parse_wait
        from tfdeploy.shared.records import NORMAL

        if self.queue and self.wait:
            raise typer.BadParameter(
                "--queue returns at once and --wait waits; expected one of them"
            )
        if self.priority != NORMAL and not (self.queue or self.wait):
            raise typer.BadParameter("--priority: expected --queue or --wait with it")
        if not (self.queue or self.wait):
            return None
        return Queue(parse_wait(self.wait) if self.wait else None, self.priority)


@dataclass(frozen=True)
class ForRun(Group):
    """What the command line changes of hosts.toml for one run."""

    words: Words = None
    hosts: Hosts = HOSTS
    env: Env = None
    name: RunName = None

    def run_options(self, trials: TrialKeys | None = None) -> RunOptions:
        from tfdeploy.commands.intent import RunOptions

        words, variables = tuple(self.words or ()), tuple(self.env or ())
        return RunOptions(words, variables, name=self.name or "", trials=trials)


@dataclass(frozen=True)
class ToStart(ForRun):
    """What the command line says about one run that is started at once, or in its turn."""

    counts: With = None
    on: OnHosts = None
    release: OlderRelease = None
    accept_new_host_keys: AcceptNew = False

    def start_options(self, when: When, *, push: bool) -> RunOptions:
        from tfdeploy.config.overrides import parse_counts

        return replace(
            self.run_options(),
            counts=parse_counts(self.counts, "--with") if self.counts else {},
            on=tuple(self.on or ()),
            share_gpus=when.share_gpus,
            release=self.release or "",
            push=push,
            queue=when.place(),
            accept_new=self.accept_new_host_keys,
        )


@dataclass(frozen=True)
class Search(Group):
    """Which parameters trials have."""

    param: Params = None
    random: Random = None
    repeat: Repeat = None

    def trial_keys(self, objective: str | None = None, *, stop_bad: bool = False) -> TrialKeys:
        from tfdeploy.commands.intent import TrialKeys

        return TrialKeys(tuple(self.param or ()), self.random, self.repeat, objective, stop_bad)


SHOWN, WHEN, FOR_RUN, TO_START, SEARCH = Shown(), When(), ForRun(), ToStart(), Search()

# The hosts whose newer records this command ignores, because it only reads.
DOUBTED: ContextVar[tuple[str, ...]] = ContextVar("DOUBTED", default=())
COMMANDS_AFTER_FOLLOWING = ("attach", "logs -f", "status", "collect", "stop")


def load_inventory(hosts: Path) -> Inventory:
    """Load a hosts.toml that the user trusts, or is asked about."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    return opening.load_inventory(hosts, USER)


def load_to_plan(hosts: Path) -> Inventory:
    """Load a hosts.toml for a plan, which runs nothing on a host."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    return opening.load_to_plan(hosts, USER)


def make_intent(inventory: Inventory, run_options: RunOptions) -> Intent:
    """Plan what hosts.toml says, with what the command line changes for one run."""
    from tfdeploy.api import opening

    return opening.plan(inventory, run_options)


def find_run(hosts: Path, run_id: str | None) -> Run:
    """Return the run that the user means, from its record or from its hosts."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    return replace(opening.find_run(hosts, run_id, USER), doubted=DOUBTED.get())


def find_runs(hosts: Path, names: Sequence[str] | None, *, offline: bool) -> list[Run]:
    """Return each run once, the newest one without `names`; with `offline` from its record on the
    controller only."""
    from tfdeploy import run as runs

    load = runs.load if offline else find_run
    found = [load(hosts, name) for name in names] if names else [load(hosts, None)]
    return list({run.id: run for run in found}.values())


def take_newer_record(outdated: OutdatedRecord) -> None:
    """Take the newer record that the run's hosts have, and say so."""
    from tfdeploy.api import opening
    from tfdeploy.cli.questions import USER

    opening.take_newer_record(outdated, USER)


def open_fleet(run: Run) -> Fleet:
    """Return the hosts of a run. They use the version of the agent that started it."""
    from tfdeploy.api import opening

    return opening.open_fleet(run)


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
