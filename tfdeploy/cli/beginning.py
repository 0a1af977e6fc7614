"""The command that writes a hosts.toml: init."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.options import HOSTS, AcceptNew, app, exit_if_failed, hosts_flag

if TYPE_CHECKING:
    from tfdeploy.commands.init import Draft
    from tfdeploy.init.targets import Target
    from tfdeploy.output.console import Console

NewHosts = Annotated[
    Path, typer.Option("--hosts", help="The file to write. It must not exist.", metavar="FILE")
]


@app.command()
def init(
    machines: Annotated[list[str] | None, typer.Argument(
        metavar="[USER@]HOST", help="Hosts as ssh knows them, or several: gpu-[01-16].",
        show_default=False)] = None,
    local: Annotated[bool, typer.Option("--local", help="Use this machine too, without SSH.")]
        = False,
    script: Annotated[Path | None, typer.Option("--script", metavar="FILE",
        help="The training script. Default: train.py, main.py, or the only one in the folder.",
        show_default=False)] = None,
    hosts: NewHosts = HOSTS,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", metavar="FILE",
        help="Read this instead of ~/.ssh/config, as ssh -F.", show_default=False)] = None,
    accept_new_host_keys: AcceptNew = False,
    dry_run: Annotated[bool, typer.Option("--dry-run",
        help="Print the file, and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes",
        help="Do not ask. Hosts that can't be used are left out, as comments.")] = False,
) -> None:  # fmt: skip
    """Look at hosts and a script, and write a hosts.toml for them. Starts nothing.

    tfdeploy init gpu-01 ml@gpu-02 · tfdeploy init "gpu-[01-16]" · tfdeploy init --local"""
    from tfdeploy.commands import init as command
    from tfdeploy.init import program
    from tfdeploy.output.console import Console

    if not dry_run:
        command.refuse_existing(hosts)
    found = program.find(hosts.absolute().parent.resolve(), script)
    targets, console = _targets(machines or [], local=local), Console(for_json=dry_run)
    with console.init_progress(len(targets)):
        draft = command.draft(
            targets,
            found,
            hosts,
            ssh_config=str(ssh_config.absolute()) if ssh_config else "",
            accept_new=accept_new_host_keys,
        )
    console.print_draft(draft)
    if dry_run:
        sys.stdout.write(draft.text)
    else:
        _write(console, draft, hosts, yes=yes)
    exit_if_failed(draft.errors)


def _targets(words: list[str], *, local: bool) -> tuple[Target, ...]:
    """Return the hosts that the user named, or names now at the terminal."""
    from tfdeploy.errors import InventoryError
    from tfdeploy.init import targets

    if not words and not local:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InventoryError(
                "name the hosts, or use this machine alone",
                "tfdeploy init gpu-01 gpu-02, or tfdeploy init --local",
            )
        question = "hosts, such as ml@gpu-01 or gpu-[01-16] (none: this machine)"
        words = typer.prompt(question, default="", show_default=False, err=True).split()
    return targets.parse(words, local=local or not words)


def _write(console: Console, draft: Draft, hosts: Path, *, yes: bool) -> None:
    """Write the file after a question at a terminal. Without one, it is written only if all hosts
    are in it, or with --yes. Raises FleetError if it is not written."""
    from tfdeploy.commands import init as command
    from tfdeploy.errors import FleetError
    from tfdeploy.trust import store

    may_ask = sys.stdin.isatty() and sys.stderr.isatty()
    if draft.errors and not yes:
        if not may_ask:
            hint = f"nothing was written; --yes writes {hosts} without these hosts"
            raise FleetError(draft.errors, hint)
        console.print_error(FleetError(draft.errors))
        typer.confirm(f"write {hosts} without them?", abort=True, err=True)
    elif may_ask and not yes:
        typer.confirm(f"write {hosts}?", default=True, abort=True, err=True)
    command.write(draft)
    store.remember(draft.inventory)  # the user has just made the file
    console.print_init_written(draft, hosts_flag(hosts))
