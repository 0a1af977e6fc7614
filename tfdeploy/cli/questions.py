"""Ask the user at the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from tfdeploy.api.opening import Questions
from tfdeploy.errors import FleetError
from tfdeploy.output.console import Console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.errors import ClaimedRecord, NotTrusted
    from tfdeploy.hosts.fleet import Fleet


class AskedUser(Questions):
    """The user at the terminal. Without one, each question is an error."""

    def trust(self, inventory: Inventory, error: NotTrusted) -> None:
        if not has_terminal():
            raise error
        from tfdeploy.trust import store

        Console().print_yellow(*error.message.split("\n"))
        require_yes("do you trust it?", "not trusted: nothing was done")
        store.remember(inventory)

    def claim(self, claim: ClaimedRecord) -> None:
        if not (claim.can_be_agreed and has_terminal()):
            raise claim
        Console().print_error(claim.with_hint(""))
        question = "to use it, type the id of the run"
        try:
            typed = typer.prompt(question, default="", show_default=False, err=True)
        except typer.Abort:  # Ctrl-C or Ctrl-D
            typer.echo(err=True)
            typed = ""
        if typed.strip() != claim.run:
            raise claim.refused()

    def on_record(self, text: str) -> None:
        Console().print_yellow(text)


USER = AskedUser()


def allow_beside_live_tasks(fleet: Fleet, hosts: Sequence[str]) -> None:
    """Ask whether to measure the network although tasks run on these hosts, if any do. Without a
    terminal, raise FleetError."""
    from tfdeploy.commands.preflight.links import refuse_live_tasks

    try:
        refuse_live_tasks(fleet, hosts)
    except FleetError as error:
        if not has_terminal():
            raise
        Console().print_error(error)
        require_yes("measure the network beside them?", "the network was not measured")


def has_terminal() -> bool:
    """Return whether questions can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_yes(question: str, refused: str, *, default: bool = False) -> None:
    """Ask at the terminal; unless the answer is yes, print what was `refused` and exit with 1."""
    try:
        agreed = typer.confirm(question, default=default, err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        typer.echo(err=True)
        agreed = False
    if not agreed:
        typer.echo(refused, err=True)
        raise typer.Exit(1)
