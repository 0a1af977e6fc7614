"""The scripts with which bash, zsh and fish complete tfdeploy's command line, and the command that
prints them."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from tfdeploy.cli.command import SHELL, add_command


class Shell(StrEnum):
    """A shell that has a script beside this module."""

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

    sys.stdout.write((resources.files(__name__) / f"tfdeploy.{shell.value}").read_text("utf-8"))
