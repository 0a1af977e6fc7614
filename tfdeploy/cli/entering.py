"""The commands that lead to where a task runs: exec, ssh."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import completion, options
from tfdeploy.cli.command import WATCH, add_command
from tfdeploy.cli.options import exit_if_failed, find_run, open_fleet

if TYPE_CHECKING:
    from collections.abc import Sequence


OneTask = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="A task (worker:1).", autocompletion=completion.propose_tasks
    ),
]


@add_command(
    WATCH,
    "exec worker:1 -- nvidia-smi",
    "exec worker:0 -- python -c 'import tensorflow as tf; print(tf.__version__)'",
    "exec --on gpu-[01-04] -- df -h .",
    "exec ps:0 -- sh < script.sh",
    name="exec",
)
def execute(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK -- COMMAND",
            help=f"{options.TASK_HELP} Then -- and the words of the command.",
            autocompletion=completion.propose_tasks,
        ),
    ],
    hosts: options.Hosts = options.HOSTS,
    run_id: options.RunId = None,
    task: options.Tasks = None,
    on: options.OnHosts = None,
) -> None:
    """Run a command in a task's directory, with its environment. Exits with its code.

    With several tasks each line starts with its task, and the exit code is 1 if one failed."""
    from tfdeploy.commands import exec as command
    from tfdeploy.output.console import Console
    from tfdeploy.output.log_lines import print_log_lines

    names, program = _split_at_dashes(words)
    names += task or []
    if not names and not on:
        raise typer.BadParameter("found no task; expected TASK, --task or --on")
    run = find_run(hosts, run_id)
    with open_fleet(run) as fleet:
        entrances, errors = command.find_entrances(fleet, run, names, on or ())
    if len(entrances) != 1 or errors:
        print_lines = partial(print_log_lines, Console())
        errors += command.execute_all(run.inventory, entrances, program, print_lines)
        exit_if_failed(errors)
        return
    code = command.execute(run.inventory, entrances[0], program, terminal=_is_terminal())
    raise typer.Exit(code)


@add_command(WATCH, "ssh worker:1", "ssh ps:0 --run 20260501-101500-3f2a")
def ssh(task: OneTask, hosts: options.Hosts = options.HOSTS, run_id: options.RunId = None) -> None:
    """Open a shell in a task's directory, with its environment. A stop does not end it."""
    from tfdeploy.commands import exec as command
    from tfdeploy.output.console import Console
    from tfdeploy.output.run_events import print_entrance

    run = find_run(hosts, run_id)
    with open_fleet(run) as fleet:
        entrance = command.find_entrance(fleet, run, task)
    if _is_terminal():
        print_entrance(Console(), entrance)
    raise typer.Exit(command.execute(run.inventory, entrance, [], terminal=_is_terminal()))


def _split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before `--`, which Typer removes, and those after it."""
    arguments = sys.argv[1:]
    if "--" not in arguments:
        command = shlex.join(words[1:]) or "nvidia-smi"
        raise typer.BadParameter(
            f"expected -- before the command: tfdeploy exec {shlex.quote(words[0])} -- {command}"
        )
    after = len(arguments) - arguments.index("--") - 1
    if not after:
        raise typer.BadParameter("found no command after --")
    return list(words[: len(words) - after]), list(words[len(words) - after :])


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
