"""The application, and how a command joins it: its group in --help, and its examples."""

from __future__ import annotations

import difflib
import re
import sys
from contextlib import contextmanager, suppress
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tfdeploy.errors import TfdeployError
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

# The groups of commands in --help.
GROUPS = PREPARE, TRAIN, WATCH, RESULTS, DISK, MEASURE, SHELL = (
    "Prepare", "Train", "Watch", "Results", "Runs on the hosts", "Measure", "Shell",
)  # fmt: skip


# Errors of Click, which Typer has in a private module.
UNKNOWN_OPTION = "NoSuchOption"
MISSING = "MissingParameter"
BYTE = re.compile(r"\\udc(?=[89a-f][0-9a-f])")  # as repr() writes a byte that is no UTF-8
SIMILAR = 0.8  # how like an option a mistyped one is, so that it is suggested; difflib's ratio


VERBOSE = ("-v", "--verbose")
VERBOSE_HELP = "Print on standard error what tfdeploy does; -vv also what Paramiko does."
INTERRUPTED = 130  # a shell's exit code for a command that SIGINT ended


class WrongWords(typer.BadParameter):
    """A command line that Typer refuses, with a text of its own."""

    def format_message(self) -> str:
        return self.message


@contextmanager
def _reason_to_abort() -> Iterator[None]:
    """Raise errors with a reason for those that Typer would end with nothing but "Aborted!", and
    exit with a word where it would exit without one."""
    try:
        yield
    except typer.Abort:
        raise TfdeployError("not confirmed: nothing was changed") from None
    except EOFError as error:  # for example of a module that is cut off
        raise RuntimeError(f"unexpected end of a file: {error}") from error
    except KeyboardInterrupt:
        print_interrupted()
        raise typer.Exit(INTERRUPTED) from None


def print_interrupted() -> None:
    with suppress(OSError):  # the terminal may be closed
        sys.stderr.write("\ninterrupted\n")


class CommandGroup(TyperGroup):
    """The application: its --help lists the commands by group."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        with _reason_to_abort():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _reason_to_abort():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve as Typer does; of an unknown command suggest only the nearest one."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            close = difflib.get_close_matches(args[0], self.commands, n=1)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            raise WrongWords(f"No such command '{escape_line(args[0])}'.{suggestion}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [each for each in self.commands.values() if isinstance(each, Command)]
        width = max(len(each.name or "") for each in commands)
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for each in commands:
            name = (each.name or "").ljust(width)  # so that the groups' columns agree
            rows[each.group].append((name, each.get_short_help_str(limit=200)))
        for group, members in rows.items():
            with formatter.section(group):
                formatter.write_dl(members)


class Command(TyperCommand):
    """A command: its --help ends with examples."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.group: str = settings["rich_help_panel"]
        self._examples: list[str] = settings.pop("epilog").splitlines()
        verbose = TyperOption(
            param_decls=[*VERBOSE], type=int, count=True, default=0, help=VERBOSE_HELP
        )
        settings["params"] = [*settings["params"], verbose]
        super().__init__(*args, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Typer does; say of an unknown option how the program gets it, and of an argument
        that is missing or unexpected what a whole command looks like."""
        ctx.allow_extra_args = True
        example, given = self._examples[0].partition("  #")[0].rstrip(), [*args]
        try:
            extra = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.replace("a valid int range", "a whole number")
            error.message = BYTE.sub(r"\\x", error.message)
            if type(error).__name__ != MISSING:
                raise
            raise WrongWords(f"{error.format_message()} For example: {example}", ctx) from None
        except Exception as error:
            if type(error).__name__ != UNKNOWN_OPTION:
                raise
            raise WrongWords(self._unknown_option(error, given), ctx) from None
        if extra and not ctx.resilient_parsing:
            found = escape_line(extra[0])
            raise WrongWords(f"Unexpected argument '{found}'. For example: {example}", ctx)
        return extra

    def invoke(self, ctx: Any) -> Any:
        verbosity = ctx.params.pop("verbose")
        if self.group == SHELL:  # a shell's start-up file has it
            return super().invoke(ctx)
        from tfdeploy.cli import debug_log

        with debug_log.logged(self.name or "", verbosity):
            return super().invoke(ctx)

    def _unknown_option(self, error: Any, given: Sequence[str]) -> str:
        """Return what to type instead of an unknown option."""
        option, found = str(error.option_name), str(error.message)
        if similar := difflib.get_close_matches(option, error.possibilities or (), 1, SIMILAR):
            found += f" (did you mean {similar[0]}?)"
        words = next((each for each in self.params if each.name == "words"), None)
        if words is None:
            return found
        typed = next((word for word in given if word.partition("=")[0] == option), option)
        short = f"tfdeploy {self.name} -- {typed}"
        example = self._examples[0] if words.required else short
        return f"{found}; words for the program follow --: {example}"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the first line, as other programs write them: `[TASK...]`."""
        arguments = (each for each in self.get_params(ctx) if each.param_type_name == "argument")
        return ["[OPTIONS]", *map(_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List arguments and options; an argument without its type of Python, which Typer adds."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                name, text = record
                kind = parameter.param_type_name
                rows[kind].append((name.partition(" <")[0] if kind == "argument" else name, text))
        for kind, members in rows.items():
            if members:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(members)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        lines = "".join(f"  {example}\n" for example in self._examples)
        # Typer would wrap its epilog, and double its line breaks.
        formatter.write(f"\nExamples:\n{lines}")


def _usage(argument: Any) -> str:
    text = argument.metavar + ("..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


app = typer.Typer(
    cls=CommandGroup,
    help="Turn machines that you reach by SSH into one TensorFlow cluster, train on it, "
    "and fetch the checkpoints.",
    no_args_is_help=True,
    add_completion=False,  # shells/ has scripts that know the colon of worker:1
    pretty_exceptions_enable=False,
    # Rich's boxes take as long as all the rest of --help, and break what one wants to copy.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def add_command(
    group: str, *examples: str, name: str | None = None
) -> Callable[[Function], Function]:
    """Return a decorator that adds a command to a group of --help, with examples at its end."""
    text = "\n".join(f"tfdeploy {example}" for example in examples)

    def add(function: Function) -> Function:
        command = name or function.__name__
        return app.command(command, cls=Command, rich_help_panel=group, epilog=text)(function)

    return add


def verbose_after_name(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with each -v from before a command's name after it."""
    flags = [*takewhile(re.compile("-v+|--verbose").fullmatch, arguments)]
    rest = arguments[len(flags) :]
    return [*rest[:1], *flags, *rest[1:]]


def run(arguments: Sequence[str]) -> None:
    """Run the application. Typer would build each command before it looks for the named one, which
    takes longer than all the rest of a short command."""
    named = copy(app)
    named.registered_commands = [
        each for each in app.registered_commands if each.name in arguments[:1]
    ] or app.registered_commands
    named()
