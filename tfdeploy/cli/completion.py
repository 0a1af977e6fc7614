"""What a shell proposes after TAB, and the script with which it asks: `tfdeploy completion`.

Run ids, tasks and hosts come from files of the controller alone. Nothing here connects to a host,
asks a question or prints: without an answer there is no proposal. The scripts in shells/ ask in
Typer's protocol for fish, which has a value in each line.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.command import SHELL, add_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdeploy.run import Run

VARIABLE = "_TFDEPLOY_COMPLETE"  # the scripts set it


def prepare() -> None:
    """Have Typer answer a shell's script, if one asks."""
    if VARIABLE in os.environ:
        os.environ["COLUMNS"] = "10000"  # Typer wraps the help, and each line is a proposal
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()  # registers what answers each shell


HARMLESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+-]*")


def _quietly(
    find: Callable[[typer.Context], Iterator[str]],
) -> Callable[[typer.Context, str], list[str]]:
    """Return a callback for Typer: the names that start with what was typed, the last of a list.

    Bash puts a proposal on the command line as it is: only names without a shell's special
    characters are proposed, since records and files may be somebody else's.
    """

    def propose(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        with suppress(Exception):
            names = dict.fromkeys(name for name in find(ctx) if name.startswith(last))
            return [before + comma + name for name in names if HARMLESS.fullmatch(name)]
        return []

    return propose


@_quietly
def propose_runs(ctx: typer.Context) -> Iterator[str]:
    """The ids of the runs, and their names; the newest first."""
    from tfdeploy import run as runs
    from tfdeploy.errors import TfdeployError

    base = _hosts_file(ctx).absolute().parent / runs.FOLDER
    ids = runs.run_ids(base)[::-1]
    yield from ids
    for run_id in ids:
        with suppress(OSError, TfdeployError):  # a truncated record must not hide the others
            yield runs.run_json(base / run_id)["name"]


@_quietly
def propose_tasks(ctx: typer.Context) -> Iterator[str]:
    """The tasks of the run, and its jobs."""
    placements = _run(ctx).plan.placements
    yield from (str(placement.task) for placement in placements)
    yield from dict.fromkeys(placement.task.job for placement in placements)


@_quietly
def propose_hosts(ctx: typer.Context) -> Iterator[str]:
    """The hosts of the run, or those of hosts.toml for a command that is not about a run."""
    from tfdeploy.config import inventory

    if "run_id" in ctx.params:
        yield from _run(ctx).plan.hosts
    else:
        yield from (host.name for host in inventory.load(_hosts_file(ctx)).hosts)


@_quietly
def propose_hosts_files(ctx: typer.Context) -> Iterator[str]:
    yield from sorted(file.name for file in Path.cwd().glob("*.toml"))


@_quietly
def propose_files(ctx: typer.Context) -> Iterator[str]:
    """Propose nothing: the shell then proposes files."""
    yield from ()


def _hosts_file(ctx: typer.Context) -> Path:
    return Path(ctx.params["hosts"])


def _run(ctx: typer.Context) -> Run:
    from tfdeploy import run as runs

    return runs.load(_hosts_file(ctx), ctx.params.get("run_id"))


class Shell(StrEnum):
    """A shell that has a script in shells/."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@add_command(
    SHELL,
    'completion bash    # in ~/.bashrc: eval "$(tfdeploy completion bash)"',
    'completion zsh     # in ~/.zshrc, after compinit: eval "$(tfdeploy completion zsh)"',
    "completion fish > ~/.config/fish/completions/tfdeploy.fish",
)
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script with which a shell completes commands, runs, tasks and hosts."""
    from importlib import resources

    script = resources.files("tfdeploy.cli") / "shells" / f"tfdeploy.{shell.value}"
    sys.stdout.write(script.read_text("utf-8"))
