"""What the program says about itself: --version, and an example of hosts.toml."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tfdeploy.cli.command import PREPARE, add_command, app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"tfdeploy {version('tfdeploy')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", metavar="", callback=_print_version,
                       is_eager=True, help="Print the version and exit.")] = False,
) -> None:  # fmt: skip
    pass


@add_command(PREPARE, "example > hosts.toml")
def example() -> None:
    """Print a hosts.toml that documents every key."""
    from importlib import resources

    sys.stdout.write((resources.files("tfdeploy") / "hosts.example.toml").read_text("utf-8"))
