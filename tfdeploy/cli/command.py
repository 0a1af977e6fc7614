"""The application, and how a command joins it: its group in --help, and its examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

# The groups of commands in --help.
PREPARE, TRAIN, WATCH, RESULTS, DISK, MEASURE, SHELL = (
    "Prepare", "Train", "Watch", "Results", "Runs on the hosts", "Measure", "Shell",
)  # fmt: skip


UNKNOWN_OPTION = "NoSuchOption"  # of Click, which Typer has in a private module


class Group(TyperGroup):
    """The application: its --help shows no type beside a flag."""

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


class Command(TyperCommand):
    """A command: its --help shows metavars instead of Python's types, and examples at its end."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._examples: str = settings.pop("epilog")
        super().__init__(*args, **settings)
        for parameter in self.params:
            _without_type(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Typer does; say of an unknown option how the program gets it."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            takes_words = any(parameter.name == "words" for parameter in self.params)
            if takes_words and type(error).__name__ == UNKNOWN_OPTION:
                example = f"tfdeploy {self.name} -- {getattr(error, 'option_name', '')}"
                vars(error)["message"] += f"; words for the program follow --: {example}"
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(self._examples)  # Typer would wrap its epilog, and double its line breaks


app = typer.Typer(
    cls=Group,
    help="Turn machines that you reach by SSH into one TensorFlow cluster, train on it, "
    "and fetch the checkpoints.",
    no_args_is_help=True,
    add_completion=False,  # shells/ has scripts that know the colon of worker:1
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add_command(
    group: str, *examples: str, name: str | None = None
) -> Callable[[Function], Function]:
    """Return a decorator that adds a command to a group of --help, with examples at its end."""
    lines = "".join(f"   tfdeploy {example}\n" for example in examples)
    text = f" Examples:\n{lines}"
    return app.command(name, cls=Command, rich_help_panel=group, epilog=text)


def _without_type(parameter: Any) -> Any:
    """Hide Python's type of a flag or an argument; any other option has a metavar."""
    if isinstance(parameter, TyperOption):
        parameter.metavar = parameter.metavar or ""
    elif parameter is not None:
        parameter.display_type_rich = lambda ctx: None
    return parameter
