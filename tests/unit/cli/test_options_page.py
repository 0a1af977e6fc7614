"""docs/commands.md has a row with every option of every command."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from tfdeploy.cli import app

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
COMMON = {"--help", "--verbose"}
COMMANDS = typer.main.get_command(app).commands


def options(command):
    """Return the long names of a command's options, without those that --help hides, and
    without those that all commands have."""
    shown = [p for p in COMMANDS[command].params if p.param_type_name == "option" and not p.hidden]
    return {name for option in shown for name in option.opts if name.startswith("--")} - COMMON


def rows():
    _, _, section = PAGE.read_text().partition("\n## Options\n")
    found = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M)
    return {command: {*re.findall(r"(--[\w-]+)", text)} for command, text in found}


def test_every_option_of_a_command_is_in_its_row():
    listed = rows()
    assert {name: listed.get(name, set()) for name in COMMANDS} == {
        name: options(name) for name in COMMANDS
    }
