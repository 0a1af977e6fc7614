"""The options that select tasks and hosts: --task and --on, and TASK as an argument."""

from __future__ import annotations

from typing import Annotated

import typer

from tfdeploy.cli import completion

TASK_HELP = "A task (worker:1), several (worker:[0-3]), or a job (worker)."
TaskArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TASK",
        help=f"{TASK_HELP} Default: all tasks.",
        show_default=False,
        autocompletion=completion.propose_tasks,
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help=f"{TASK_HELP} Repeatable.",
        autocompletion=completion.propose_tasks,
    ),
]
TasksOn = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="HOST",
        help="Only tasks on this host, or several: gpu-[01-04]. Repeatable.",
        autocompletion=completion.propose_hosts,
    ),
]
OnHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="HOST",
        help="Only this host, or several: gpu-[01-04]. Repeatable.",
        autocompletion=completion.propose_hosts,
    ),
]
